package bwrapflags

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/nsexec"
)

// sameSpec compares what a command line determines.
var sameSpec = cmp.Options{cmp.AllowUnexported(nsexec.Namespace{})}

func roundTrip(t *testing.T, c *Command, facts Facts) {
	t.Helper()
	if c.UserNS != nil || c.PIDNS != nil {
		return // the Spec of these is complete only with the descriptors
	}
	line, err := Format(&c.Spec, facts, 100)
	var none *FormError
	if errors.As(err, &none) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(line.Words, []string{"OTHER=1"}, fakeFDs(line.Data), facts)
	if err != nil {
		t.Fatalf("%q: %v", line.Words, err)
	}
	if diff := cmp.Diff(c.Spec, again.Spec, sameSpec); diff != "" {
		t.Errorf("%q\n%s", line.Words, diff)
	}
}

func TestFormat(t *testing.T) {
	for _, facts := range []Facts{asRoot, asUser} {
		for _, line := range []string{
			"true",
			"--unshare-all --die-with-parent --new-session --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp sh -c x",
			"--unshare-user --uid 7 --gid 8 --disable-userns --cap-add CAP_NET_ADMIN --chdir /x --argv0 y -- true",
			"--perms 0700 --dir /a --perms 01777 --size 5 --tmpfs /b --file 3 /c --perms 0444 --ro-bind-data 4 /d --bind-data 5 /e true",
			"--overlay-src /a --overlay-src /b --ro-overlay /o --overlay-src /a --tmp-overlay /p --overlay-src /a --overlay /u /w /q true",
			"--bind-fd 7 /a --chmod 0755 /a --remount-ro /a --mqueue /m --symlink x /y --follow-dest --bind-try /a /b true",
			"--unshare-pid --as-pid-1 --unshare-uts --hostname '' --rlimit core=0 --launch-status 9 --forward-signals true",
			"--level-prefix --lock-file /l --sync-fd 8 --block-fd 9 --userns2 10 --assert-userns-disabled true",
			"--unshare-pid --proc /proc -- ''",
		} {
			c := parse(t, line, fakeFDs{3: "x", 4: "", 5: "\x00\xff"}, facts, "HOME=/h", "PATH=/bin")
			if _, err := Format(&c.Spec, facts, 100); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			roundTrip(t, c, facts)
		}
	}
}

func TestFormatRefusesWhatBwrapCannotDo(t *testing.T) {
	umask := uint32(0)
	for name, change := range map[string]func(*nsexec.Spec){
		"Umask":         func(s *nsexec.Spec) { s.Umask = &umask },
		"AllowNewPrivs": func(s *nsexec.Spec) { s.AllowNewPrivs = true },
		"UIDMap":        func(s *nsexec.Spec) { s.UIDMap = []nsexec.IDMap{{Count: 5}} },
		"Mounts":        func(s *nsexec.Spec) { s.Mounts = nil },
		"Launcher":      func(s *nsexec.Spec) { s.Launcher = nil },
		"KeepFDs":       func(s *nsexec.Spec) { s.KeepFDs = false },
	} {
		s := parse(t, "--ro-bind / / true", fakeFDs{}, asRoot).Spec
		change(&s)
		_, err := Format(&s, asRoot, 100)
		var none *FormError
		if !errors.As(err, &none) || none.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGeneratedLines parses and formats random lines of options.
func TestGeneratedLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var names []string
	for n := range options() {
		names = append(names, n)
	}
	good := 0
	for range 20000 {
		var line []string
		for range 1 + r.IntN(6) {
			name := names[r.IntN(len(names))]
			line = append(line, name)
			for range options()[name].operands {
				line = append(line, []string{"/a", "b", "3", "0700", "CAP_KILL", "X", "nofile=5"}[r.IntN(7)])
			}
		}
		facts := []Facts{asRoot, asUser}[r.IntN(2)]
		c, err := Parse(append(line, "true", strconv.Itoa(r.IntN(9))), []string{"HOME=/h"}, fakeFDs{3: "--tmpfs\x00/q"}, facts)
		if err == nil && c.Action == Run {
			good++
			roundTrip(t, c, facts)
		}
	}
	if good < 1000 {
		t.Errorf("only %d lines were good", good)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"--ro-bind\n/\n/\n--dev\n/dev\n--unshare-all\ntrue", "--args\n3\ntrue", "--perms\n0700\n--tmpfs\n/x\ntrue", "--overlay-src\na\n--tmp-overlay\n/x\nt",
		"--cap-add\nALL\n--uid\n 7\n--unshare-user\ntrue", "--seccomp\n3\ntrue", "--size\n0x10\n--tmpfs\n/\nx", "--setenv\nA\nB\n--clearenv\nx",
	} {
		f.Add(s, "--dir\x00/x", true)
	}
	f.Fuzz(func(t *testing.T, text, data string, root bool) {
		facts := asUser
		if root {
			facts = asRoot
		}
		c, err := Parse(splitLines(text), []string{"A=1", "HOME=/"}, fakeFDs{3: data}, facts)
		if err == nil && c.Action == Run {
			roundTrip(t, c, facts)
		}
	})
}

func splitLines(s string) []string {
	var out []string
	for {
		i := 0
		for i < len(s) && s[i] != '\n' {
			i++
		}
		out = append(out, s[:i])
		if i == len(s) {
			return out
		}
		s = s[i+1:]
	}
}
