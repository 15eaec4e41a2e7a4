//go:build linux

package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// Destinations below a writable bind, in which the guest of an earlier run has
// planted links to the host: CVE-2026-87766. The launch may fail or land inside
// the guest; it makes and changes nothing on the host.
func TestPlantedDestination(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		outside := t.TempDir()
		if err := os.WriteFile(outside+"/file", []byte("host's"), 0o644); err != nil {
			t.Fatal(err)
		}
		source := t.TempDir()
		if err := os.WriteFile(source+"/file", []byte("source"), 0o644); err != nil {
			t.Fatal(err)
		}
		links := map[string]string{
			"absolute":     outside,
			"relative":     "../../../../../../../../.." + outside,
			"by old root":  "/oldroot" + outside,
			"by dot dot":   "/../oldroot" + outside,
			"by proc":      "/proc/self/root" + outside,
			"by proc 1":    "/proc/1/root" + outside,
			"by directory": "/proc/self/cwd/../.." + outside,
			"to the file":  outside + "/file",
			"to nothing":   outside + "/new",
			"chain":        "absolute",
			"loop":         "loop",
		}
		for fd := range 12 { // any that the launch has open
			links[fmt.Sprintf("by descriptor %d", fd)] = fmt.Sprintf("/proc/self/fd/%d", fd)
		}
		before := snapshot(t, outside)
		for name, target := range links {
			for form, ops := range map[string]func(dest string) mounts.Op{
				"bind":    func(d string) mounts.Op { return mounts.Bind{Source: source, Dest: d} },
				"file":    func(d string) mounts.Op { return mounts.Bind{Source: source + "/file", Dest: d} },
				"follow":  func(d string) mounts.Op { return mounts.Bind{Source: source, Dest: d, FollowDest: true} },
				"tmpfs":   func(d string) mounts.Op { return mounts.Tmpfs{Dest: d} },
				"dir":     func(d string) mounts.Op { return mounts.Dir{Dest: d} },
				"write":   func(d string) mounts.Op { return mounts.File{Dest: d, Data: "guest's"} },
				"data":    func(d string) mounts.Op { return mounts.BindData{Dest: d, Data: "guest's"} },
				"symlink": func(d string) mounts.Op { return mounts.Symlink{Dest: d, Target: "/x"} },
				"chmod":   func(d string) mounts.Op { return mounts.Chmod{Dest: d, Perm: 0o777} },
			} {
				for _, below := range []string{"", "/x", "/file", "/x/y"} {
					ws := t.TempDir()
					if err := os.Symlink(target, ws+"/l"); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(outside, ws+"/absolute"); err != nil {
						t.Fatal(err)
					}
					s := guest.Spec([]string{"true"}, mounts.Bind{Source: ws, Dest: "/ws", Mode: mounts.ReadWrite}, ops("/ws/l"+below))
					guest.Try(s) // may fail
					if after := snapshot(t, outside); after != before {
						t.Fatalf("%s onto a link %s, %q: the host had\n%s\nand has\n%s", form, name, below, before, after)
					}
				}
			}
		}
		// The control: the link is one that leads there for whoever follows it.
		ws := t.TempDir()
		if err := os.Symlink(outside, ws+"/l"); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(ws+"/l/x", 0o755); err != nil || snapshot(t, outside) == before {
			t.Errorf("following the link on the host makes nothing there, %v; this attack proves nothing", err)
		}
	})
}

// snapshot describes a directory.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, p, st.Mode())
		if st.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			fmt.Fprintf(&b, "%q\n", data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A profile that binds something below the workspace meets planted links in
// the same way, and says where.
func TestPlantedDestinationOfProfile(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		outside := t.TempDir()
		before := snapshot(t, outside)
		if err := os.Symlink(outside, p.Workspace+"/data"); err != nil {
			t.Fatal(err)
		}
		bindReadOnly(t, &p)
		p.RequiredBinds[1].Guest = "/workspace/data"
		sandbox, err := postern.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer sandbox.Close()
		_, err = sandbox.Run(t.Context(), "true")
		var bad *postern.IsolationError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "/workspace/data") {
			t.Errorf("binding onto a planted link: %v, want an error that names it", err)
		}
		if after := snapshot(t, outside); after != before {
			t.Errorf("the host has\n%s", after)
		}
	})
}

// What replaces the source of a bind between the host's check and the launch
// is not bound: CVE-2024-42472.
func TestSourceRace(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir, secret := t.TempDir(), t.TempDir()
		for d, text := range map[string]string{dir + "/d": "checked", dir + "/spare": "checked", secret: "secret"} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(d+"/which", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(secret, dir+"/link"); err != nil {
			t.Fatal(err)
		}
		swap := func() error {
			return unix.Renameat2(unix.AT_FDCWD, dir+"/d", unix.AT_FDCWD, dir+"/link", unix.RENAME_EXCHANGE)
		}
		attempt := func(between func(), byPath bool) string {
			fd, err := unix.Open(dir+"/d", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), dir+"/d")
			defer f.Close()
			if st, err := f.Stat(); err != nil || !st.IsDir() {
				return "refused by the host"
			}
			between()
			bind := mounts.Bind{Source: dir + "/d", Dest: "/bound"}
			s := guest.Spec([]string{"cat", "/bound/which"})
			s.StageFiles = []*os.File{f}
			if !byPath {
				n := s.StageFD(0)
				bind.FD = &n
			}
			s.Mounts.Ops = append(s.Mounts.Ops, bind)
			r, err := guest.Try(s)
			if err != nil {
				return "refused"
			}
			return r.Out
		}
		swapped := func() {
			if err := swap(); err != nil {
				t.Fatal(err)
			}
		}
		if got := attempt(swapped, false); got != "checked" {
			t.Errorf("a source moved away after it was opened: %s, want what was checked", got)
		}
		swapped()
		if got := attempt(swapped, true); got != "secret" {
			t.Errorf("by path the launch has %s; this attack proves nothing", got)
		}
		swapped()
		if got := attempt(func() {
			if err := os.Rename(dir+"/d", dir+"/gone"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir+"/spare", dir+"/d"); err != nil {
				t.Fatal(err)
			}
		}, false); got != "checked" {
			t.Errorf("a source replaced by another directory: %s", got)
		}
		// What the kernel calls a directory that is gone may be the name of another.
		if got := attempt(func() {
			if err := errors.Join(os.RemoveAll(dir+"/d"), os.Mkdir(dir+"/d (deleted)", 0o755), os.WriteFile(dir+"/d (deleted)/which", []byte("secret"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}, false); got != "refused" {
			t.Errorf("a source removed after it was opened: %s", got)
		}
		if err := os.Rename(dir+"/gone", dir+"/d"); err != nil {
			t.Fatal(err)
		}

		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					swap()
				}
			}
		}()
		seen := map[string]int{}
		// What the host's check refuses is no launch: the swapper may not have run at all in between.
		for n := 0; n < launches; {
			got := attempt(func() {}, false)
			if got != "refused by the host" {
				n++
				seen[got]++
			}
		}
		close(stop)
		<-stopped
		delete(seen, "refused")
		if seen["checked"] == 0 {
			t.Errorf("of %d launches none worked", launches)
		}
		delete(seen, "checked")
		if len(seen) > 0 {
			t.Errorf("in a race a guest had %v", seen)
		}
	})
}

const launches = 400

// A root file system that tries to lead its own launch astray:
// CVE-2025-31133, CVE-2025-52565, CVE-2025-52881, CVE-2019-19921.
func TestHostileRootfs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		secret := t.TempDir()
		if err := os.WriteFile(secret+"/secret", []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, secret)
		up := strings.Repeat("../", 20) + secret[1:]

		t.Run("rootfs", func(t *testing.T) {
			root := t.TempDir()
			for name, target := range map[string]string{"lib": secret, "lib64": up, "bin": "/proc/self/root" + secret, "sbin": "chain", "chain": secret} {
				if err := os.Symlink(target, root+"/"+name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(root+"/usr", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(secret, root+"/etc"); err != nil { // /etc/ld.so.cache is looked for there
				t.Fatal(err)
			}
			if err := os.WriteFile(secret+"/ld.so.cache", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(secret + "/ld.so.cache")
			p := postern.Profile{Rootfs: root}
			s, err := p.Spec([]string{"/x/probe"})
			if err != nil {
				t.Fatal(err)
			}
			sources := func(s *nsexec.Spec) (bad []string) {
				for _, op := range s.Mounts.Ops {
					b, ok := op.(mounts.Bind)
					if !ok {
						continue
					}
					if where, err := filepath.EvalSymlinks(b.Source); err == nil && !strings.HasPrefix(where, root) {
						bad = append(bad, b.Dest)
					}
				}
				return bad
			}
			if bad := sources(s); bad != nil {
				t.Errorf("these are bound from outside of the rootfs: %q", bad)
			}
			edit(s, func(b *mounts.Bind) { b.Source = root + b.Dest })
			if bad := sources(s); len(bad) < 4 {
				t.Errorf("of links followed on the host only %q lead outside; this attack proves nothing", bad)
			}
		})

		for name, image := range map[string]struct {
			links map[string]string
			works bool
		}{
			"proc":          {map[string]string{"proc": secret}, false},
			"proc, up":      {map[string]string{"proc": up}, false},
			"dev":           {map[string]string{"dev": secret}, false},
			"workspace":     {map[string]string{"workspace": secret}, false},
			"tmp":           {map[string]string{"tmp": secret}, false},
			"devices":       {map[string]string{"dev/null": secret + "/secret", "dev/console": "/proc/sys/kernel/core_pattern", "dev/pts/0": "/proc/sysrq-trigger", "dev/shm": secret, "dev/pts/ptmx": secret}, true},
			"masked files":  {map[string]string{"proc/keys": secret + "/secret", "proc/sys": secret}, true},
			"probe":         {map[string]string{"probe": secret + "/secret"}, false},
			"parent":        {map[string]string{"opt": "/srv/opt"}, true},
			"parent, proc":  {map[string]string{"opt": "/proc/self/root"}, false},
			"parent, magic": {map[string]string{"opt": "/proc/self/fd/3"}, false},
		} {
			t.Run(strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
				lower := t.TempDir()
				for l, target := range image.links {
					if err := os.MkdirAll(filepath.Dir(filepath.Join(lower, l)), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(target, filepath.Join(lower, l)); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.MkdirAll(lower+"/srv/opt", 0o755); err != nil { // where a link may lead
					t.Fatal(err)
				}
				p := wall(t)
				p.Overlay = &postern.Overlay{Lower: []string{lower}}
				for _, dir := range []string{"/usr", "/lib", "/lib64"} { // for the test program
					if _, err := os.Stat(dir); err == nil {
						p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: dir})
					}
				}
				if strings.HasPrefix(name, "parent") {
					p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: "/usr", Guest: "/opt/sub/usr"})
				}
				s := spec(t, p, fsProbe)
				r, err := guest.Try(s)
				switch {
				case err == nil:
					want := "proc is proc, null is 1:3, tmp is tmpfs, core_pattern EROFS"
					if got := ended(r); got != want && !(!isRoot() && got == strings.Replace(want, "EROFS", "EACCES", 1)) {
						t.Errorf("the guest has: %s, want: %s", got, want)
					}
				case image.works:
					t.Errorf("the launch fails: %v", err)
				}
				if after := snapshot(t, secret); after != before {
					t.Errorf("the host has\n%s", after)
				}
			})
		}
	})
}

// fsProbe says what the places are that a launch mounts things on.
var fsProbe = guest.Probe("file systems", func([]string) {
	kind := func(path string) string {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return outcome(err)
		}
		switch st.Type {
		case unix.PROC_SUPER_MAGIC:
			return "proc"
		case unix.TMPFS_MAGIC:
			return "tmpfs"
		}
		return fmt.Sprintf("%#x", st.Type)
	}
	var null unix.Stat_t
	err := unix.Lstat("/dev/null", &null)
	what := fmt.Sprintf("%d:%d", unix.Major(null.Rdev), unix.Minor(null.Rdev))
	if err != nil || null.Mode&unix.S_IFMT != unix.S_IFCHR {
		what = "no device"
	}
	fmt.Printf("proc is %s, null is %s, tmp is %s, core_pattern %s\n", kind("/proc"), what, kind("/tmp"), outcome(openTo("/proc/sys/kernel/core_pattern", unix.O_WRONLY)))
	for _, f := range []string{"/proc/keys", "/proc/secret", "/dev/secret", "/tmp/secret", "/workspace/secret", "/opt/secret"} {
		if b, err := os.ReadFile(f); err == nil && slices.Equal(b, []byte("secret")) {
			fmt.Println(f, "is the host's")
		}
	}
})
