//go:build linux

package mounts_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// Links among the parents of a destination lead elsewhere in the new root, in
// one that this launch made and in one that was there before.
func TestParentsThroughLinks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		src := tree(t, "f")
		for _, target := range []string{"real", "/real", "../../real", "./x/../real", "/../../../real", "abs", "//real//."} {
			for _, where := range []string{"made", "bound"} {
				host := tree(t, "outside/")
				base := []mounts.Op{mounts.Dir{Dest: "/real"}, mounts.Symlink{Target: "/real", Dest: "/abs"}, mounts.Dir{Dest: "/x"}, mounts.Symlink{Target: target, Dest: "/link"}}
				prefix := ""
				if where == "bound" {
					top := tree(t, "real/", "x/", "abs -> /real", "link -> "+target)
					base = []mounts.Op{mounts.Dir{Dest: "/real"}, mounts.Bind{Source: top, Dest: "/bound", Mode: mounts.ReadWrite}}
					prefix = "/bound"
				}
				real := prefix + "/real"
				if where == "bound" && (strings.HasPrefix(target, "/") || strings.HasPrefix(target, "../..") || target == "abs") {
					real = "/real"
				}
				ops := append(base,
					mounts.Bind{Source: src, Dest: prefix + "/link/dir"}, mounts.Bind{Source: src + "/f", Dest: prefix + "/link/file"},
					mounts.Tmpfs{Dest: prefix + "/link/t/u"}, mounts.File{Dest: prefix + "/link/text", Data: "text\n"}, mounts.Dir{Dest: prefix + "/link/d/e"},
					mounts.Symlink{Target: "text", Dest: prefix + "/link/l"}, mounts.BindData{Dest: prefix + "/link/data", Data: "data\n"},
					mounts.Chmod{Dest: prefix + "/link/text", Perm: 0o600})
				got := guest.Output(t, "cd "+real+" && cat dir/f file text data && readlink l && stat -c %a text && ls", ops...)
				if want := "f\nf\ntext\ndata\ntext\n600\nd\ndata\ndir\nfile\nl\nt\ntext"; got != want {
					t.Errorf("%s, -> %s: %q", where, target, got)
				}
				if got := files(t, host); !slices.Equal(got, []string{"outside/"}) {
					t.Errorf("the host has %q", got)
				}
			}
		}
	})
}

// No link leads out of the new root.
func TestLinksDoNotLeadOut(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		victim := tree(t, "f")
		dir := open(t, victim)
		before := files(t, victim)
		targets := []string{
			victim, "/oldroot" + victim, "/newroot/../oldroot" + victim, "/proc/1/root" + victim, "/proc/self/root" + victim, "/proc/self/cwd" + victim, "/proc/thread-self/root" + victim,
			strings.Repeat("../", 30) + victim[1:], "/oldroot/../.." + victim, "../oldroot" + victim,
		}
		for _, target := range targets {
			for _, op := range []mounts.Op{
				mounts.Dir{Dest: "/esc/created"}, mounts.File{Dest: "/esc/created", Data: "x"}, mounts.Tmpfs{Dest: "/esc/created"}, mounts.Symlink{Target: "x", Dest: "/esc/created"},
				mounts.Bind{Source: "/usr", Dest: "/esc/created"}, mounts.Bind{Source: "/usr", Dest: "/esc/created", FollowDest: true}, mounts.BindData{Dest: "/esc/created"}, mounts.Proc{Dest: "/esc/created"},
				mounts.Dev{Dest: "/esc/created"}, mounts.File{Dest: "/esc", Data: "x"}, mounts.Dir{Dest: "/esc"}, mounts.Bind{Source: "/usr", Dest: "/esc", FollowDest: true},
				mounts.File{Dest: "/esc/f", Data: "overwritten"}, mounts.Chmod{Dest: "/esc/f", Perm: 0}, mounts.Overlay{Dest: "/esc/created", Lower: []string{"/usr"}}, mounts.RemountRO{Dest: "/esc"},
				mounts.Dir{Dest: "/esc/../created"}, mounts.File{Dest: "/esc/../created"},
			} {
				// Whether it fails or ends up inside does not matter.
				guest.Try(guest.Shell("true", mounts.Symlink{Target: target, Dest: "/esc"}, op))
			}
			if got := files(t, victim); !slices.Equal(got, before) {
				t.Fatalf("-> %s: the host has %q", target, got)
			}
		}
		if b, err := os.ReadFile(victim + "/f"); err != nil || string(b) != "f\n" {
			t.Errorf("the host's file is %q, %v", b, err)
		}
		// The magic links of an inherited descriptor.
		for _, link := range []string{"/proc/self/fd/3", "/proc/self/fd/4", "/dev/fd/3", "/proc/1/fd/3"} {
			for _, op := range []mounts.Op{mounts.Dir{Dest: "/x/created"}, mounts.File{Dest: "/x/created"}, mounts.Bind{Source: "/usr", Dest: "/x/created"}} {
				s := guest.Shell("true", mounts.Symlink{Target: link, Dest: "/x"}, op)
				s.StageFiles = []*os.File{dir}
				if r, err := guest.Try(s); err == nil {
					t.Errorf("%s, %v: launched %+v", link, op, r)
				}
			}
		}
		if got := files(t, victim); !slices.Equal(got, before) {
			t.Errorf("the host has %q", got)
		}
		// The control: without a link the very same operation does create it,
		// where it is meant to.
		guest.Output(t, "test -d /esc/created", mounts.Bind{Source: victim, Dest: "/esc", Mode: mounts.ReadWrite}, mounts.Dir{Dest: "/esc/created"})
		if got := files(t, victim); slices.Equal(got, before) {
			t.Error("nothing was created: the test cannot fail")
		}
	})
}

// A link as the last component is refused, and can be followed on request.
func TestLinkAsDestination(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		src := tree(t, "f")
		for _, target := range []string{"there", "/there", "dangling", "/usr", "file"} {
			top := tree(t, "there/", "file", "link -> "+target)
			before := files(t, top)
			for where, base := range map[string][]mounts.Op{
				"made":  {mounts.Dir{Dest: "/there"}, mounts.File{Dest: "/file"}, mounts.Symlink{Target: target, Dest: "/link"}},
				"bound": {mounts.Bind{Source: top, Dest: "/", Mode: mounts.ReadWrite}},
			} {
				for _, op := range []mounts.Op{
					mounts.Bind{Source: src, Dest: "/link"}, mounts.Bind{Source: src + "/f", Dest: "/link"}, mounts.Tmpfs{Dest: "/link"}, mounts.Proc{Dest: "/link"}, mounts.Dev{Dest: "/link"},
					mounts.Mqueue{Dest: "/link"}, mounts.BindData{Dest: "/link"}, mounts.File{Dest: "/link", Data: "x"}, mounts.Chmod{Dest: "/link", Perm: 0o700},
					mounts.Overlay{Dest: "/link", Lower: []string{src}}, mounts.Bind{Source: src, Dest: "/link", Optional: true},
				} {
					s := guest.Shell("true")
					s.Mounts = &mounts.Tree{Ops: append(slices.Clone(base), op)}
					r, err := guest.Try(s)
					if err == nil {
						t.Errorf("%s, -> %s: %v: launched %+v", where, target, op, r)
					} else if !strings.Contains(err.Error(), "/link") || !strings.Contains(err.Error(), unix.ELOOP.Error()) {
						t.Errorf("%s, -> %s: %v: %v", where, target, op, err)
					}
				}
			}
			if got := files(t, top); !slices.Equal(got, before) {
				t.Errorf("-> %s: the host has %q", target, got)
			}
		}
		for _, c := range []struct {
			target, source, script string
		}{
			{"there", "", "cat /there/f"}, {"/there", "", "cat /there/f"}, {"/there/new", "", "cat /there/f"}, {"file", "/f", "cat /file"}, {"../../file", "/f", "cat /file"},
		} {
			if c.target == "/there/new" {
				continue // a dangling link is followed nowhere: see below
			}
			ops := []mounts.Op{mounts.Dir{Dest: "/there"}, mounts.File{Dest: "/file"}, mounts.Symlink{Target: c.target, Dest: "/link"}}
			if got := guest.Output(t, c.script, append(ops, mounts.Bind{Source: src + c.source, Dest: "/link", FollowDest: true})...); got != "f" {
				t.Errorf("follow to %s: %q", c.target, got)
			}
		}
		// FollowDest makes what is missing as any bind does.
		if got := guest.Output(t, "cat /new/f", mounts.Bind{Source: src, Dest: "/new", FollowDest: true}); got != "f" {
			t.Errorf("%q", got)
		}
		wantFailure(t, "", unix.ELOOP, mounts.Symlink{Target: "/nowhere", Dest: "/link"}, mounts.Bind{Source: src, Dest: "/link", FollowDest: true})
	})
}

func TestSymlinkOp(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "same -> target/of it", "other -> elsewhere", "longer -> target/of it!", "shorter -> target/of i", "file", "dir/")
		bound := mounts.Bind{Source: top, Dest: "/b", Mode: mounts.ReadWrite}
		target := "target/of it"
		for _, n := range []int{1, 7, 8, 9, 16, 255, 4095} { // about the size of a word
			long := strings.Repeat("t", n)
			ops := []mounts.Op{bound, mounts.Symlink{Target: long, Dest: "/b/new"}, mounts.Symlink{Target: long, Dest: "/b/new"}, mounts.Symlink{Target: long, Dest: "/s"}, mounts.Symlink{Target: long, Dest: "/s"}}
			if got := guest.Output(t, "readlink -n /b/new | wc -c; readlink -n /s | wc -c; rm /b/new", ops...); strings.Fields(got)[0] != strings.Fields(got)[1] || len(got) == 0 {
				t.Errorf("%d: %q", n, got)
			}
		}
		guest.Output(t, "readlink /b/same", bound, mounts.Symlink{Target: target, Dest: "/b/same"})
		for _, name := range []string{"other", "longer", "shorter", "file", "dir"} {
			errno := unix.EEXIST
			if name == "file" || name == "dir" {
				errno = unix.EINVAL // of reading what is no link
			}
			se := wantFailure(t, "", errno, bound, mounts.Symlink{Target: target, Dest: "/b/" + name})
			if se.On != "/b/"+name {
				t.Errorf("on %q", se.On)
			}
			wantFailure(t, "", unix.EEXIST, mounts.Symlink{Target: "one", Dest: "/s"}, mounts.Symlink{Target: "two", Dest: "/s"})
		}
		wantFailure(t, "", unix.EINVAL, mounts.File{Dest: "/s"}, mounts.Symlink{Target: "two", Dest: "/s"})
		wantFailure(t, "", unix.EINVAL, mounts.Dir{Dest: "/s"}, mounts.Symlink{Target: "two", Dest: "/s"})
	})
}

func TestDotDot(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		src := tree(t, "f")
		for _, dest := range []string{"/a/../d", "/../d", "/../../../../d", "/a/b/../../d", "/./d", "//d//", "/usr/../d"} {
			ops := []mounts.Op{mounts.Dir{Dest: "/a/b"}, mounts.Dir{Dest: "/d"}, mounts.Bind{Source: src, Dest: dest}}
			if got := guest.Output(t, "cat /d/f", ops...); got != "f" {
				t.Errorf("%s: %q", dest, got)
			}
			for _, op := range []mounts.Op{mounts.Tmpfs{Dest: dest}, mounts.Dir{Dest: dest}, mounts.Proc{Dest: dest}} {
				ops[2] = op
				guest.Output(t, "test -d /d", ops...)
			}
		}
		guest.Output(t, "cat /a/f", mounts.Dir{Dest: "/a/b"}, mounts.Bind{Source: src, Dest: "/a/b/.."})
		guest.Output(t, "grep -q x /n/f && test -f /n/f", mounts.Dir{Dest: "/a"}, mounts.Dir{Dest: "/n"}, mounts.File{Dest: "/a/../n/f", Data: "x"})
	})
}

// What is bound over "/" becomes the whole file system.
func TestDestinationRoot(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		run := func(script string, ops ...mounts.Op) string {
			t.Helper()
			s := guest.Shell(script)
			s.Mounts = &mounts.Tree{Ops: ops}
			return guest.MustOutput(t, s)
		}
		dest, err := os.MkdirTemp("", "root")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dest)
		src := tree(t, "f")
		for _, root := range []string{"/", "//", "/.", "/.."} {
			got := run("cat "+dest+"/d/f; readlink /proc/1/root; pwd; grep -c ' / / ' /proc/self/mountinfo", mounts.Bind{Source: "/", Dest: root, Mode: mounts.ReadWrite}, mounts.Proc{Dest: "/proc"}, mounts.Dev{Dest: "/dev"},
				mounts.Bind{Source: src, Dest: dest + "/d"})
			if !strings.HasPrefix(got, "f\n/\n") {
				t.Errorf("%s: %q", root, got)
			}
		}
		if got := files(t, dest); !slices.Equal(got, []string{"d/"}) {
			t.Errorf("the host has %q", got)
		}
		system := guest.System()
		for name, ops := range map[string][]mounts.Op{
			"tmpfs":   append([]mounts.Op{mounts.Tmpfs{Dest: "/", Perm: mounts.Perm(0o711)}}, system...),
			"bind":    append([]mounts.Op{mounts.Bind{Source: tree(t, "mark"), Dest: "/", Mode: mounts.ReadWrite}}, system...),
			"overlay": append([]mounts.Op{mounts.Overlay{Dest: "/", Lower: []string{tree(t, "mark")}}}, system...),
		} {
			want := map[string]string{"tmpfs": "711", "bind": "755", "overlay": "755"}[name]
			if got := run("stat -c %a /; ls / | grep mark; true", ops...); !strings.HasPrefix(got, want) || (name != "tmpfs") != strings.Contains(got, "mark") {
				t.Errorf("%s: %q", name, got)
			}
		}
		// Twice over.
		if got := run("cat /f; ls /", append([]mounts.Op{mounts.Bind{Source: tree(t, "below"), Dest: "/"}, mounts.Tmpfs{Dest: "/"}, mounts.File{Dest: "/f", Data: "f\n"}}, system...)...); !strings.HasPrefix(got, "f\n") || strings.Contains(got, "below") {
			t.Errorf("%q", got)
		}
		s := guest.Shell("(: >/x) 2>&1 | grep -o Read-only.*")
		s.Mounts = &mounts.Tree{Ops: append(system, mounts.RemountRO{Dest: "/"})}
		if got := guest.MustOutput(t, s); got != "Read-only file system" {
			t.Errorf("root remounted: %q", got)
		}
	})
}

// Nothing of the host's file system stays reachable.
func TestOldRootIsGone(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := guest.Output(t, "cut -d' ' -f5 /proc/self/mountinfo; ls -d /oldroot /newroot /.. 2>/dev/null; cd /../../.. && pwd; ls /..")
		for l := range strings.Lines(got) {
			if strings.Contains(l, "oldroot") || strings.Contains(l, "newroot") || strings.HasPrefix(l, "/home") || strings.HasPrefix(l, "/sys") {
				t.Errorf("%s", l)
			}
		}
		roots := 0
		for _, m := range strings.Split(got, "\n") {
			if m == "/" {
				roots++
			}
		}
		if roots != 2 { // the mount, and what pwd prints
			t.Errorf("%d mounts at the root:\n%s", roots-1, got)
		}
		ls, _, _ := strings.Cut(guest.Output(t, "ls -a / | tr '\\n' ' '"), "\n")
		if want := ". .. bin dev etc lib lib64 proc sbin tmp usr "; ls != want {
			t.Errorf("the root has %q, want %q", ls, want)
		}
	})
}

// Resolving ".." while the machine renames and mounts needs a second try now
// and then; a launch makes it.
func TestDotDotUnderRenames(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "a/", "b/")
		stop := make(chan struct{})
		var renames sync.WaitGroup
		for i := range 2 {
			renames.Go(func() {
				from, to := fmt.Sprintf("%s/a/%d", top, i), fmt.Sprintf("%s/b/%d", top, i)
				if err := os.Mkdir(from, 0o755); err != nil {
					t.Error(err)
				}
				for {
					select {
					case <-stop:
						return
					default:
						os.Rename(from, to)
						os.Rename(to, from)
					}
				}
			})
		}
		var ops []mounts.Op
		for i := range 300 {
			ops = append(ops, mounts.Dir{Dest: fmt.Sprintf("/a/../b/../c/../%d", i)}, mounts.Bind{Source: "/usr", Dest: fmt.Sprintf("/a/../%d", i)})
		}
		for range 5 {
			guest.Output(t, "test -e /299/bin", append([]mounts.Op{mounts.Dir{Dest: "/a"}, mounts.Dir{Dest: "/b"}, mounts.Dir{Dest: "/c"}}, ops...)...)
		}
		close(stop)
		renames.Wait()
	})
}
