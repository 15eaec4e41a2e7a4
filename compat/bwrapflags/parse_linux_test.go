package bwrapflags

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// fakeFDs are descriptors with contents; reading one uses it up.
type fakeFDs map[int]string

func (f fakeFDs) ReadAll(fd int) ([]byte, error) {
	data, ok := f[fd]
	if !ok {
		return nil, unix.EBADF
	}
	delete(f, fd)
	return []byte(data), nil
}

func yes() bool { return true }

var (
	asRoot = Facts{Program: "bwrap", Caps: 1<<41 - 1, LastCap: 40, Dir: "/home/me", UserNamespaces: yes, CgroupNamespaces: yes,
		ProcWritable: ProcMasks}
	asUser = Facts{Program: "bwrap", UID: 1000, GID: 1000, LastCap: 40, Dir: "/home/me", UserNamespaces: yes, CgroupNamespaces: yes,
		ProcWritable: func() []string { return nil }}
)

func words(line string) []string {
	ws := strings.Fields(line)
	for i, w := range ws {
		if w == "''" {
			ws[i] = ""
		}
	}
	return ws
}

const overlayText = "bwrap: --overlay-src must be followed by another --overlay-src or one of --overlay, --tmp-overlay, or --ro-overlay"

// TestErrors has the texts of bubblewrap 0.13.1, as it printed them.
func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		"--foo":                                 "bwrap: Unknown option --foo",
		"-x":                                    "bwrap: Unknown option -x",
		"-":                                     "bwrap: Unknown option -",
		"--unshare-user=x":                      "bwrap: Unknown option --unshare-user=x",
		"--level-prefix --foo":                  "<3>bwrap: Unknown option --foo",
		"--foo --version":                       "bwrap: Unknown option --foo",
		"--bind":                                "bwrap: --bind takes two arguments",
		"--ro-bind-try a":                       "bwrap: --ro-bind-try takes two arguments",
		"--ro-bind-fd 3":                        "bwrap: --bind-fd takes two arguments",
		"--args":                                "bwrap: --args takes an argument",
		"--argv0":                               "bwrap: --argv0 takes one argument",
		"--chdir":                               "bwrap: --chdir takes one argument",
		"--remount-ro":                          "bwrap: --remount-ro takes one argument",
		"--overlay a b":                         overlayOrArguments,
		"--overlay-src":                         overlayText,
		"--argv0 a --argv0 b":                   "bwrap: --argv0 used multiple times",
		"--bind '' x true":                      "bwrap: --bind does not take an empty path argument",
		"--bind x '' true":                      "bwrap: --bind does not take an empty path argument",
		"--tmpfs '' true":                       "bwrap: --tmpfs does not take an empty path argument",
		"--symlink '' /x true":                  "bwrap: --symlink does not take an empty path argument",
		"--lock-file '' true":                   "bwrap: --lock-file does not take an empty path argument",
		"--chdir '' true":                       "bwrap: --chdir does not take an empty path argument",
		"--chmod 0700 '' true":                  "bwrap: --chmod does not take an empty path argument",
		"--file '' x true":                      "bwrap: Invalid fd: ",
		"--args xx":                             "bwrap: Invalid fd: xx",
		"--args -1":                             "bwrap: Invalid fd: -1",
		"--args 77":                             "bwrap: Can't read --args data: Bad file descriptor",
		"--uid x":                               "bwrap: Invalid uid: x",
		"--uid 7x":                              "bwrap: Invalid uid: 7x",
		"--uid 0x10":                            "bwrap: Invalid uid: 0x10",
		"--gid -1":                              "bwrap: Invalid gid: -1",
		"--uid 2147483648 true":                 "bwrap: Invalid uid: 2147483648",
		"--uid 4294967296 true":                 "bwrap: Invalid uid: 4294967296", // bubblewrap: root
		"--uid 5 true":                          "bwrap: Specifying --uid requires --unshare-user or --userns",
		"--gid 5 true":                          "bwrap: Specifying --gid requires --unshare-user or --userns",
		"--hostname x true":                     "bwrap: Specifying --hostname requires --unshare-uts",
		"--as-pid-1 true":                       "bwrap: Specifying --as-pid-1 requires --unshare-pid",
		"--perms 9 true":                        "bwrap: --perms takes an octal argument <= 07777",
		"--perms 10000":                         "bwrap: --perms takes an octal argument <= 07777",
		"--perms -1":                            "bwrap: --perms takes an octal argument <= 07777",
		"--chmod 99 / true":                     "bwrap: --chmod takes an octal argument <= 07777",
		"--perms 1 --perms 2":                   "bwrap: --perms given twice for the same action",
		"--perms 0700 --bind / /":               "bwrap: --perms must be followed by an option that creates a file",
		"--perms 1 --symlink a b":               "bwrap: --perms must be followed by an option that creates a file",
		"--size 0 --tmpfs /x":                   "bwrap: --size takes a non-zero number of bytes",
		"--size -1 --tmpfs /x":                  "bwrap: --size takes a non-zero number of bytes",
		"--size 5k":                             "bwrap: --size takes a non-zero number of bytes",
		"--size 08":                             "bwrap: --size takes a non-zero number of bytes",
		"--size 9223372036854775808 --tmpfs /x": "bwrap: --size (for tmpfs) is limited to 9223372036854775807",
		"--size 1 --size 2":                     "bwrap: --size given twice for the same action",
		"--size 1 --dir /x":                     "bwrap: --size must be followed by --tmpfs",
		"--overlay-src d true":                  overlayText,
		"--overlay-src d --unshare-pid":         overlayText,
		"--overlay-src d --perms 1 --tmp-overlay":  overlayText,
		"--overlay-src d --ro-overlay /x":          "bwrap: --ro-overlay requires at least two --overlay-src",
		"--tmp-overlay /x":                         "bwrap: --tmp-overlay requires at least one --overlay-src",
		"--seccomp 0 --add-seccomp-fd 0":           "bwrap: --add-seccomp-fd cannot be combined with --seccomp",
		"--add-seccomp-fd 0 --seccomp 0":           "bwrap: --seccomp cannot be combined with --add-seccomp-fd",
		"--seccomp 9 true":                         "bwrap: Can't read seccomp data: Bad file descriptor",
		"--cap-add net_admin":                      "bwrap: unknown cap: net_admin",
		"--cap-drop 64":                            "bwrap: unknown cap: 64",
		"--setenv a=b c":                           "bwrap: setenv failed",
		"--setenv '' c":                            "bwrap: setenv failed",
		"--unsetenv ''":                            "bwrap: unsetenv failed",
		"--exec-label l true":                      "bwrap: labeling not supported on this system",
		"--userns-block-fd 9 true":                 "bwrap: --userns-block-fd requires --unshare-user",
		"--userns-block-fd 9 --unshare-user true":  "bwrap: --userns-block-fd requires --info-fd",
		"--userns 9 --unshare-user true":           "bwrap: --userns is not compatible with --unshare-user",
		"--userns 9 --unshare-user-try true":       "bwrap: --userns is not compatible with --unshare-user-try",
		"--unshare-user-try --disable-userns true": "bwrap: --disable-userns requires --unshare-user",
		"--unshare-pid --as-pid-1 --lock-file x t": "bwrap: Specifying --as-pid-1 and --lock-file is not permitted",
		"--ro-bind-data 9 /f true":                 "bwrap: Can't write data to file /f: Bad file descriptor",
		"--file 3 /f --file 3 /g true":             "bwrap: Can't write data to file /g: Bad file descriptor",
		"--debug-opt=x":                            "bwrap: Unknown --debug-opt value: x",
		"--rlimit nofile":                          "bwrap: --rlimit takes NAME=SOFT or NAME=SOFT:HARD, like nofile=1024:4096: nofile",
		"--rlimit nofile=5:4 true":                 "bwrap: --rlimit takes NAME=SOFT or NAME=SOFT:HARD, like nofile=1024:4096: nofile=5:4",
		"--launch-status 256 true":                 "bwrap: --launch-status takes a number from 1 to 255: 256",
	} {
		_, err := Parse(words(line), nil, fakeFDs{3: "data"}, asRoot)
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
		var typed *Error
		if !errors.As(err, &typed) {
			t.Errorf("%s: %T is no *Error", line, err)
		}
	}
}

const overlayOrArguments = "bwrap: --overlay takes three arguments"

func TestUsageWhereThereIsNoCommand(t *testing.T) {
	for _, line := range []string{"", "--", "--unshare-user", "--uid 5", "--perms 0700", "--ro-bind / / --"} {
		_, err := Parse(words(line), nil, fakeFDs{}, asRoot)
		var bad *Error
		if !errors.As(err, &bad) || !bad.Usage || !strings.HasPrefix(bad.Error(), "usage: bwrap [OPTIONS...] [--] COMMAND [ARGS...]\n") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestActions(t *testing.T) {
	for line, want := range map[string]Action{
		"--version --foo": ShowVersion, "--help": Help, "--unshare-pid --help --foo": Help, "--debug-opt=print-assumed-kernel": Kernel,
		"true --version": Run, "--explain true": Explain, "-- --help": Run,
	} {
		c, err := Parse(words(line), nil, fakeFDs{}, asRoot)
		if err != nil || c.Action != want {
			t.Errorf("%s: %v, %v; want %v", line, c.Action, err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	c, err := Parse(words("--chdir / --chdir /tmp --level-prefix --uid 0 --uid 0 --seccomp 3 --sync-fd 3 --sync-fd 4 --seccomp 3 true"), nil, fakeFDs{}, asRoot)
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.String())
	}
	want := []string{
		"bwrap: Only the last --chdir option will take effect",
		"<4>bwrap: Only the last --uid option will take effect",
		"<4>bwrap: Only the last --seccomp option will take effect",
	}
	if diff := cmp.Diff(want, got); diff != "" || err == nil || err.Error() != "<3>bwrap: Can't read seccomp data: Bad file descriptor" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// parse is for lines that must be good.
func parse(t *testing.T, line string, fds fakeFDs, facts Facts, env ...string) *Command {
	t.Helper()
	c, err := Parse(words(line), env, fds, facts)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return c
}

func TestOrderOfOperationsIsKept(t *testing.T) {
	c := parse(t, "--ro-bind / / --tmpfs /tmp --perms 1777 --size 0x10 --tmpfs t --bind-try d /d --symlink a /l --ro-bind-data 3 /f --proc /proc true",
		fakeFDs{3: "data"}, asRoot)
	want := []mounts.Op{
		mounts.Bind{Source: "/", Dest: "/"},
		mounts.Tmpfs{Dest: "/tmp"},
		mounts.Tmpfs{Dest: "/t", Perm: mounts.Perm(0o1777), Size: 16},
		mounts.Bind{Source: "/home/me/d", Dest: "/d", Mode: mounts.ReadWrite, Optional: true},
		mounts.Symlink{Target: "a", Dest: "/l"},
		mounts.BindData{Dest: "/f", Data: "data"},
		mounts.Proc{Dest: "/proc", Host: true, Masks: ProcMasks()},
	}
	if diff := cmp.Diff(want, c.Spec.Mounts.Ops); diff != "" {
		t.Error(diff)
	}
	if c.Dest("/t") != "t" || c.Source("/home/me/d") != "d" || c.Source("/t") != "/t" || c.Dest("/home/me/d") != "/home/me/d" {
		t.Error("paths are not named as written")
	}
}

func TestArgumentsFromFile(t *testing.T) {
	c := parse(t, "--unshare-pid --args 3 --args 4 echo hi", fakeFDs{
		3: "--tmpfs\x00/a\x00--\x00ignored\x00--bogus", 4: "--tmpfs\x00/b\x00ignored\x00",
	}, asRoot)
	want := []mounts.Op{mounts.Tmpfs{Dest: "/a"}, mounts.Tmpfs{Dest: "/b"}}
	if diff := cmp.Diff(want, c.Spec.Mounts.Ops); diff != "" || !slices.Equal(c.Spec.Args, []string{"echo", "hi"}) {
		t.Errorf("%q\n%s", c.Spec.Args, diff)
	}
	for data, want := range map[string]string{
		"--args\x003\x00":       "bwrap: --args not supported in arguments file",
		"--ro-bind\x00/":        "bwrap: --ro-bind takes two arguments",
		"--perms\x000700":       "bwrap: --perms must be followed by an option that creates a file",
		"--overlay-src\x00d":    overlayText,
		"--tmpfs\x00\x00":       "bwrap: --tmpfs does not take an empty path argument",
		"--uid\x00\x00--uid":    "bwrap: Invalid uid: ",
		"--setenv\x00A\x00B=\n": "",
	} {
		_, err := Parse(words("--args 3 --dir /x true"), nil, fakeFDs{3: data}, asRoot)
		if got := ""; err != nil && err.Error() != want || err == nil && got != want {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
	long := strings.Repeat("--unshare-pid\x00", 20000)
	if _, err := Parse(words("--args 3 true"), nil, fakeFDs{3: long}, asRoot); err != nil {
		t.Errorf("many words: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	all := nsexec.Namespaces{User: nsexec.New, Mount: nsexec.New, PID: nsexec.New, Net: nsexec.New, IPC: nsexec.New, UTS: nsexec.New, Cgroup: nsexec.New}
	noNet, mount, user := all, nsexec.Namespaces{Mount: nsexec.New}, nsexec.Namespaces{Mount: nsexec.New, User: nsexec.New}
	noNet.Net = nsexec.Share
	old := asRoot
	no := func() bool { return false }
	old.UserNamespaces, old.CgroupNamespaces = no, no
	bare := all
	bare.User, bare.Cgroup = nsexec.Share, nsexec.Share
	for _, c := range []struct {
		line  string
		facts Facts
		want  nsexec.Namespaces
	}{
		{"true", asRoot, mount},
		{"true", asUser, user},
		{"--userns 9 true", asUser, mount},
		{"--unshare-all true", asRoot, all},
		{"--unshare-all true", old, bare},
		{"--unshare-all --share-net true", asRoot, noNet},
		{"--share-net --unshare-all true", asRoot, all},
	} {
		if got := parse(t, c.line, fakeFDs{}, c.facts).Spec.Namespaces; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.line, got, c.want)
		}
	}
	if _, err := Parse(words("--unshare-cgroup true"), nil, fakeFDs{}, old); err == nil {
		t.Error("a namespace the kernel does not have")
	}
}

func TestEnvironment(t *testing.T) {
	c := parse(t, "--setenv B 2 --unsetenv A --setenv C --setenv --setenv PATH /p --setenv D a=b true", fakeFDs{}, asRoot, "A=1", "PATH=/x", "odd", "=odd", "E=5")
	if want := []string{"PATH=/p", "E=5", "B=2", "C=--setenv", "D=a=b"}; !slices.Equal(c.Spec.Env, want) {
		t.Errorf("%q", c.Spec.Env)
	}
	c = parse(t, "--setenv A 1 --clearenv --setenv B 2 true", fakeFDs{}, asRoot, "Z=1")
	if !slices.Equal(c.Spec.Env, []string{"B=2"}) || !c.Spec.SetPWD {
		t.Errorf("%q", c.Spec.Env)
	}
}

func TestStartDirectory(t *testing.T) {
	lost := asRoot
	lost.Dir = ""
	for _, c := range []struct {
		line  string
		facts Facts
		env   string
		want  []string
	}{
		{"true", asRoot, "HOME=/root", []string{"/home/me", "/root", "/"}},
		{"true", asRoot, "HOME=", []string{"/home/me", "/"}},
		{"--setenv HOME /h true", lost, "HOME=/root", []string{"/h", "/"}},
		{"--clearenv true", lost, "HOME=/root", []string{"/"}},
		{"--chdir rel true", asRoot, "HOME=/root", []string{"rel"}},
	} {
		s := parse(t, c.line, fakeFDs{}, c.facts, c.env).Spec
		if got := append([]string{s.Dir}, s.DirFallback...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	if _, err := Parse(words("--bind . /x true"), nil, fakeFDs{}, lost); err == nil || err.Error() != "bwrap: Can't find source path .: No such file or directory" {
		t.Error(err)
	}
}

func TestCapabilities(t *testing.T) {
	const all, admin = nsexec.CapSet(1<<41 - 1), nsexec.CapSet(1 << 12)
	few := asRoot
	few.Caps = 0xff
	for _, c := range []struct {
		line  string
		facts Facts
		caps  nsexec.CapSet
		keep  bool
	}{
		{"true", asRoot, nsexec.AllCaps, true},
		{"--unshare-user true", few, 0xff, true},
		{"--cap-drop ALL true", asRoot, 0, false},
		{"--cap-drop all --cap-add CAP_NET_ADMIN true", asRoot, admin, false},
		{"--cap-add cap_net_admin --cap-drop All true", asRoot, 0, false},
		{"--cap-drop 12 true", asRoot, all &^ admin, false},
		{"--cap-add ALL true", few, 0xff, false},
		{"--unshare-user --cap-add ALL true", few, all, false},
		{"--cap-add 63 --cap-drop ALL --cap-add 63 true", asRoot, 0, false},
		{"true", asUser, 0, false},
		{"--cap-add CAP_NET_ADMIN true", asUser, admin, false},
	} {
		s := parse(t, c.line, fakeFDs{}, c.facts).Spec
		if s.Caps != c.caps || s.KeepCaps != c.keep {
			t.Errorf("%s: %s, keep %v; want %s, %v", c.line, s.Caps, s.KeepCaps, c.caps, c.keep)
		}
	}
}

// A command that keeps capabilities must not have them over the namespaces the
// sandbox was set up in, where bubblewrap's would not.
func TestInnerUserNamespace(t *testing.T) {
	for _, c := range []struct {
		line  string
		facts Facts
		want  bool
	}{
		{"--dev /dev true", asUser, false},
		{"--dev /dev --cap-add ALL true", asUser, true},
		{"--cap-add ALL true", asUser, false},
		{"--dev /dev --cap-add ALL --uid 0 --gid 0 true", asUser, false},
		{"--dev /dev --unshare-user true", asRoot, false},
		{"--dev /dev --unshare-user --uid 5 true", asRoot, true},
	} {
		if got := parse(t, c.line, fakeFDs{}, c.facts).Spec.Launcher.InnerUser; got != c.want {
			t.Errorf("%s: %v", c.line, got)
		}
	}
}

func TestProcess(t *testing.T) {
	c := parse(t, "--unshare-pid --as-pid-1 --new-session --sync-fd 5 --die-with-parent --argv0 zero --launch-status 7 --rlimit nofile=5 --rlimit CPU=1:unlimited sh -c x", fakeFDs{}, asRoot)
	s, x := c.Spec, c.Spec.Launcher
	if s.Init || !s.NewSession || s.Path != "sh" || !slices.Equal(s.Args, []string{"zero", "-c", "x"}) {
		t.Errorf("%+v", s)
	}
	if len(x.Sync) != 0 || !x.DieWithParent || x.FailStatus != 7 || x.ExecStatus != 7 || x.ExecPrefix != "bwrap: execvp " {
		t.Errorf("%+v", x)
	}
	want := []pidone.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 5, Hard: 5}, {Resource: unix.RLIMIT_CPU, Soft: 1, Hard: unix.RLIM_INFINITY}}
	if diff := cmp.Diff(want, s.Limits); diff != "" {
		t.Error(diff)
	}
}

func TestNumbersAsTheCLibraryReadsThem(t *testing.T) {
	for s, want := range map[string]int{" 7": 7, "\t+7": 7, "007": 7, "-0": 0, "2147483647": 2147483647} {
		if n, ok := smallNumber(s); !ok || n != want {
			t.Errorf("%q: %d, %v", s, n, ok)
		}
	}
	for _, s := range []string{"", " ", "7 ", "1_0", "0x1", "--1", "+", "99999999999999999999", "2147483648"} {
		if n, ok := smallNumber(s); ok {
			t.Errorf("%q: %d", s, n)
		}
	}
	for s, want := range map[string]uint64{"1": 1, "010": 8, "0x10": 16, "0XfF": 255} {
		if n, ok := byteCount(s); !ok || n != want {
			t.Errorf("%q: %d, %v", s, n, ok)
		}
	}
	for _, s := range []string{"", " 1", "+1", "0", "0b1", "0o7", "1_0", "0x", "18446744073709551616"} {
		if n, ok := byteCount(s); ok {
			t.Errorf("%q: %d", s, n)
		}
	}
}

// Every option must be in the usage text: clients look there.
func TestUsageNamesEveryOption(t *testing.T) {
	text := Usage("bwrap")
	for word := range options() {
		if !strings.Contains(text, "\n    "+word+" ") {
			t.Errorf("%s is missing", word)
		}
	}
}
