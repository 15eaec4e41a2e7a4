//go:build linux

package mounts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

func TestBindModes(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, c := range []struct {
			mode          mounts.Mode
			flags, script string
			want          string
		}{
			{mounts.ReadOnly, "ro,nosuid,nodev", "(echo x >/b/f) 2>&1 | grep -o 'Read-only.*'; cat /b/f", "Read-only file system\nf"},
			{mounts.ReadWrite, "rw,nosuid,nodev", "echo x >/b/f; cat /b/f; touch /b/new", "x"},
			{mounts.Device, "rw,nosuid", "echo x >/b/f; cat /b/f; touch /b/new", "x"},
		} {
			top := tree(t, "f", "dir/g")
			for _, dest := range []string{"/b", "/deep/er/b"} { // one level down, and with parents to be made
				script := strings.ReplaceAll(c.script, "/b", dest) + fmt.Sprintf("; grep -o ' %s [a-z,]*' /proc/self/mountinfo", dest)
				if got, want := guest.Output(t, script, mounts.Bind{Source: top, Dest: dest, Mode: c.mode}), fmt.Sprintf("%s\n %s %s,relatime", c.want, dest, c.flags); got != want {
					t.Errorf("%v at %s: %q, want %q", c.mode, dest, got, want)
				}
			}
			_, err := os.Stat(top + "/new")
			if written := err == nil; written != (c.mode != mounts.ReadOnly) {
				t.Errorf("%v: written to the host: %v", c.mode, written)
			}
			// A single file, onto a path that exists and one that does not.
			for _, dest := range []string{"/file", "/there", "/deep/file"} {
				ops := []mounts.Op{mounts.File{Dest: "/there", Data: "covered"}, mounts.Bind{Source: top + "/dir/g", Dest: dest, Mode: c.mode}}
				if got := guest.Output(t, "cat "+dest, ops...); got != "dir/g" {
					t.Errorf("%v: file at %s: %q", c.mode, dest, got)
				}
			}
		}
	})
}

func TestBindDevices(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for mode, want := range map[mounts.Mode]string{mounts.Device: "fine", mounts.ReadWrite: "denied", mounts.ReadOnly: "denied"} {
			if got := guest.Output(t, "(echo x >/d/null) 2>/dev/null && echo fine || echo denied", mounts.Bind{Source: "/dev", Dest: "/d", Mode: mode}); got != want {
				t.Errorf("%v: %s, want %s", mode, got, want)
			}
			if got := guest.Output(t, "(echo x >/null) 2>/dev/null && echo fine || echo denied", mounts.Bind{Source: "/dev/null", Dest: "/null", Mode: mode}); got != want {
				t.Errorf("%v, alone: %s, want %s", mode, got, want)
			}
		}
	})
}

func TestBindFromDescriptor(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "dir/f", "file", "other/f")
		for _, open := range []struct {
			how   string
			flags int
		}{{"O_RDONLY", unix.O_RDONLY}, {"O_PATH", unix.O_PATH}} {
			for name, show := range map[string]string{"dir": "cat /d/f", "file": "cat /d"} {
				fd, err := unix.Open(filepath.Join(top, name), open.flags|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				f := os.NewFile(uintptr(fd), name)
				s := guest.Shell(show + "; ls /proc/self/fd | tr '\\n' ' '")
				s.StageFiles = []*os.File{f}
				s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{FD: ptr(s.StageFD(0)), Dest: "/d"})
				want := map[string]string{"dir": "dir/f", "file": "file"}[name] + "\n0 1 2 3 "
				if got := guest.MustOutput(t, s); got != want {
					t.Errorf("%s %s: %q, want %q", open.how, name, got, want)
				}
				f.Close()
			}
		}
		// It names the file that was opened, wherever that is by now, and
		// never another one in its place.
		f := open(t, filepath.Join(top, "dir"))
		s := guest.Shell("cat /d/f")
		s.StageFiles = []*os.File{f}
		s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{FD: ptr(s.StageFD(0)), Dest: "/d"})
		if err := os.Rename(filepath.Join(top, "dir"), filepath.Join(top, "moved")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("other", filepath.Join(top, "dir")); err != nil {
			t.Fatal(err)
		}
		if got := guest.MustOutput(t, s); got != "dir/f" {
			t.Errorf("moved: %q", got)
		}
		if err := os.RemoveAll(filepath.Join(top, "moved")); err != nil {
			t.Fatal(err)
		}
		var se *nsexec.StartError
		if _, err := guest.Try(s); !errors.As(err, &se) || se.Errno != unix.ENOENT {
			t.Errorf("removed: %v", err)
		}
		// A file in its place that has its very path.
		gone := filepath.Join(top, "moved (deleted)")
		if err := os.Mkdir(gone, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := guest.Try(s); !errors.As(err, &se) || se.Step != mounts.DoSameFile {
			t.Errorf("replaced: %v", err)
		}
	})
}

// Read-only is the whole tree, whatever is mounted below.
func TestReadOnlyCoversSubmounts(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := guest.Output(t, `sed 's/.* \(\/h[^ ]*\) \([a-z,]*\) .*/\1 \2/; /^\/h/!d' /proc/self/mountinfo; for d in /h/tmp /h/dev/shm /h/run; do touch $d/x 2>&1 | grep -o 'Read-only.*'; done; (: >/h/dev/null) 2>&1 | grep -o 'denied'; true`, mounts.Bind{Source: "/", Dest: "/h"})
		lines := strings.Split(got, "\n")
		if n := strings.Count(got, "/h"); n < 4 {
			t.Fatalf("the host's root has no submounts to speak of: %q", got)
		}
		for _, l := range lines {
			if strings.HasPrefix(l, "/h") && !strings.Contains(l, " ro,nosuid,nodev") {
				t.Errorf("%s", l)
			}
		}
		if !strings.Contains(got, "Read-only file system") {
			t.Errorf("nothing was refused: %q", got)
		}
	})
}

// Sources are resolved on the host, following links wherever they lead.
func TestSourceThroughLinks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "a/b/f", "up -> a/b/../b", "abs -> /usr/bin", "chain -> up", "dangling -> nowhere")
		for source, script := range map[string]string{
			"up": "cat /d/f", "chain": "cat /d/f", "a/../up/../b": "cat /d/f", "a/b/..": "cat /d/b/f", "up/f": "cat /d", "./a//b/.": "cat /d/f",
		} {
			if got := guest.Output(t, script, mounts.Bind{Source: top + "/" + source, Dest: "/d"}); got != "a/b/f" {
				t.Errorf("%s: %q", source, got)
			}
		}
		guest.Output(t, "test -x /d/env", mounts.Bind{Source: top + "/abs", Dest: "/d"})
		wantFailure(t, mounts.DoSource, unix.ENOENT, mounts.Bind{Source: top + "/dangling", Dest: "/d"})
		guest.Output(t, "test ! -e /d", mounts.Bind{Source: top + "/dangling", Dest: "/d", Optional: true})
	})
}

// After an optional bind nobody knows whether it is there; what follows works
// either way.
func TestOptionalBindThenMore(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "there/sub/", "there/f", "file")
		for _, source := range []string{"there", "missing"} {
			opt := mounts.Bind{Source: top + "/" + source, Dest: "/o/x", Mode: mounts.ReadWrite, Optional: true}
			got := guest.Output(t, "cd /o; find . | sort | tr '\\n' ' '; cat x/sub/f x/data; stat -c %a x/dir",
				opt,
				mounts.Dir{Dest: "/o/x/dir", Perm: mounts.Perm(0o700)},
				mounts.Bind{Source: top + "/file", Dest: "/o/x/sub/f"},
				mounts.Bind{Source: top + "/missing", Dest: "/o/x/sub/g", Optional: true},
				mounts.File{Dest: "/o/x/data", Data: "data\n"},
				mounts.Symlink{Target: "data", Dest: "/o/x/link"},
				mounts.Bind{Source: top + "/file", Dest: "/o/y"},
			)
			want := ". ./x ./x/data ./x/dir ./x/link ./x/sub ./x/sub/f ./y file\ndata\n700"
			if source == "there" {
				want = ". ./x ./x/data ./x/dir ./x/f ./x/link ./x/sub ./x/sub/f ./y file\ndata\n700"
			}
			if got != want {
				t.Errorf("%s: %q, want %q", source, got, want)
			}
		}
	})
}

func TestNames(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, name := range []string{"a b", "a:b", "a,b", `a\b`, `a"b`, "a\nb", "ünï\xff", "-", "$x`'", strings.Repeat("n", 255)} {
			top := tree(t, name+"/f", "lower/l", "upper/", "work/")
			src := filepath.Join(top, name)
			dest := "/d/" + name + "/here"
			s := guest.Spec([]string{"cat", dest + "/f", "/t/" + name, "/data/" + name}, mounts.Bind{Source: src, Dest: dest}, mounts.Tmpfs{Dest: "/t"}, mounts.File{Dest: "/t/" + name, Data: "t\n"},
				mounts.BindData{Dest: "/data/" + name, Data: "data"})
			if got, want := guest.MustOutput(t, s), name+"/f\nt\ndata"; got != want {
				t.Errorf("%q: %q, want %q", name, got, want)
			}
			overlays := []mounts.Op{
				mounts.Overlay{Dest: "/o", Lower: []string{filepath.Join(top, "lower"), src}},
				mounts.Overlay{Dest: "/o", Lower: []string{filepath.Join(top, "lower"), src}, ReadOnly: true},
				mounts.Overlay{Dest: "/o/" + name, Lower: []string{filepath.Join(top, "lower"), src}, Upper: filepath.Join(top, "upper"), Work: filepath.Join(top, "work")},
			}
			for _, o := range overlays {
				at := o.(mounts.Overlay).Dest
				s := guest.Spec([]string{"cat", at + "/f", at + "/l"}, o)
				r, err := guest.Try(s)
				if len(name) == 255 || err != nil || r.Out != name+"/f\nlower/l\n" {
					if len(name) == 255 && err == nil && r.Out == name+"/f\nlower/l\n" {
						continue
					}
					t.Errorf("%v: %+v, %v", o, r, err)
				}
			}
		}
	})
}

// Mounting over a known and an unknown destination, of either type.
func TestBindTypes(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "dir/f", "file", "rw/dir/", "rw/file")
		dir, file := mounts.Bind{Source: top + "/dir"}, mounts.Bind{Source: top + "/file"}
		at := func(b mounts.Bind, dest string) mounts.Bind { b.Dest = dest; return b }
		rw := mounts.Bind{Source: top + "/rw", Dest: "/rw", Mode: mounts.ReadWrite}
		for _, c := range []struct {
			ops   []mounts.Op
			errno unix.Errno // or 0
		}{
			{[]mounts.Op{mounts.Dir{Dest: "/x"}, at(dir, "/x")}, 0},
			{[]mounts.Op{mounts.Dir{Dest: "/x"}, at(file, "/x")}, unix.ENOTDIR},
			{[]mounts.Op{mounts.File{Dest: "/x"}, at(file, "/x")}, 0},
			{[]mounts.Op{mounts.File{Dest: "/x"}, at(dir, "/x")}, unix.ENOTDIR},
			{[]mounts.Op{rw, at(dir, "/rw/dir")}, 0},
			{[]mounts.Op{rw, at(file, "/rw/dir")}, unix.ENOTDIR},
			{[]mounts.Op{rw, at(file, "/rw/file")}, 0},
			{[]mounts.Op{rw, at(dir, "/rw/file")}, unix.ENOTDIR},
			{[]mounts.Op{rw, at(file, "/rw/file/")}, 0},
			{[]mounts.Op{mounts.File{Dest: "/x"}, at(dir, "/x/below")}, unix.ENOTDIR},
			{[]mounts.Op{mounts.File{Dest: "/x"}, mounts.Tmpfs{Dest: "/x"}}, unix.ENOTDIR},
			{[]mounts.Op{rw, mounts.Tmpfs{Dest: "/rw/file"}}, unix.ENOTDIR},
			{[]mounts.Op{mounts.File{Dest: "/x"}, mounts.Dir{Dest: "/x"}}, unix.ENOTDIR},
			{[]mounts.Op{mounts.File{Dest: "/x"}, mounts.Dir{Dest: "/x/y"}}, unix.ENOTDIR},
			{[]mounts.Op{mounts.Dir{Dest: "/x"}, mounts.File{Dest: "/x"}}, unix.EISDIR},
			{[]mounts.Op{mounts.Dir{Dest: "/x"}, mounts.BindData{Dest: "/x"}}, unix.ENOTDIR},
			{[]mounts.Op{at(dir, "/same"), at(dir, "/same")}, 0},
			{[]mounts.Op{at(dir, "/same"), at(file, "/same/f")}, 0},
			{[]mounts.Op{at(dir, "/same"), at(file, "/same/g")}, unix.EROFS},
		} {
			var se *nsexec.StartError
			_, err := guest.Try(guest.Shell("true", c.ops...))
			switch {
			case c.errno == 0 && err != nil, c.errno != 0 && !errors.As(err, &se):
				t.Errorf("%v: %v", c.ops, err)
			case c.errno == unix.ENOTDIR && se.Errno == unix.EINVAL: // move_mount says it so
			case c.errno != 0 && se.Errno != c.errno:
				t.Errorf("%v: %v, want %v", c.ops, err, c.errno)
			}
		}
		if got, want := files(t, top), []string{"dir/", "dir/f", "file", "rw/", "rw/dir/", "rw/file"}; !slices.Equal(got, want) {
			t.Errorf("the host now has %q", got)
		}
	})
}

// Mount points are made on the host only below a writable bind, in the
// simplest form.
func TestWhatIsCreatedOnTheHost(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "rw/", "dir/", "file")
		mode := mounts.ReadWrite
		guest.Output(t, "true", mounts.Bind{Source: top + "/rw", Dest: "/rw", Mode: mode},
			mounts.Bind{Source: top + "/dir", Dest: "/rw/a/b"}, mounts.Bind{Source: top + "/file", Dest: "/rw/c/d"}, mounts.Tmpfs{Dest: "/rw/t"},
			mounts.Dir{Dest: "/rw/t/not-here"}, mounts.Dir{Dest: "/rw/dir", Perm: mounts.Perm(0o700)}, mounts.File{Dest: "/rw/file", Data: "data", Perm: mounts.Perm(0o640)},
			mounts.BindData{Dest: "/rw/bound", Data: "secret"}, mounts.Symlink{Target: "t", Dest: "/rw/link"}, mounts.Proc{Dest: "/rw/proc"}, mounts.Dev{Dest: "/rw/dev"},
			mounts.Bind{Source: top + "/missing", Dest: "/rw/optional", Optional: true})
		want := []string{"a/", "a/b/", "bound", "c/", "c/d", "dev/", "dir/", "file", "link -> t", "proc/", "t/"}
		if got := files(t, top+"/rw"); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		for name, want := range map[string]os.FileMode{"a": 0o755, "a/b": 0o755, "c/d": 0o444, "t": 0o755, "dir": 0o700, "file": 0o640, "bound": 0o444} {
			st, err := os.Stat(filepath.Join(top, "rw", name))
			if err != nil || st.Mode().Perm() != want {
				t.Errorf("%s: %v, %v, want %v", name, st.Mode(), err, want)
			}
			if name == "bound" && st.Size() != 0 {
				t.Error("bound data was written to the host")
			}
		}
		// Below a read-only bind nothing can be made, and the launch says so.
		se := wantFailure(t, mounts.DoMkdir, unix.EROFS, mounts.Bind{Source: top + "/rw", Dest: "/ro"}, mounts.Bind{Source: top + "/dir", Dest: "/ro/new"})
		if se.On != "/ro/new" {
			t.Errorf("on %q", se.On)
		}
		wantFailure(t, mounts.DoCreate, unix.EROFS, mounts.Bind{Source: top + "/rw", Dest: "/ro"}, mounts.Bind{Source: top + "/file", Dest: "/ro/new"})
		wantFailure(t, mounts.DoParents, unix.EROFS, mounts.Bind{Source: top + "/rw", Dest: "/ro"}, mounts.Bind{Source: top + "/file", Dest: "/ro/new/er"})
	})
}

// A source that is swapped all the time is one or the other, and if it leads
// into a link's target then because the caller's path said so; what is bound is
// what was opened.
func TestSourceIsOpenedOnce(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "real/mark", "dir/mark")
		// The guest-writable directory that an attacker flips. A descriptor
		// was opened when it was still harmless.
		f := open(t, filepath.Join(top, "dir"))
		stop := make(chan struct{})
		var flips sync.WaitGroup
		flips.Go(func() {
			dir, link, spare := filepath.Join(top, "dir"), filepath.Join(top, "link"), filepath.Join(top, "spare")
			if err := os.Symlink("/etc", link); err != nil {
				t.Error(err)
			}
			for {
				select {
				case <-stop:
					return
				default:
					os.Rename(dir, spare)
					os.Rename(link, dir)
					os.Rename(dir, link)
					os.Rename(spare, dir)
				}
			}
		})
		launches := 1000
		if os.Geteuid() != 0 {
			launches = 200
		}
		var mu sync.Mutex
		var bound, refused int
		next := make(chan struct{})
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range next {
					s := guest.Spec([]string{"/bin/sh", "-c", "test -e /d/mark && test ! -e /d/passwd"})
					s.Mounts.Ops = append([]mounts.Op{}, guest.System()...)
					s.StageFiles = []*os.File{f}
					s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{FD: ptr(s.StageFD(0)), Dest: "/d"})
					r, err := guest.Try(s)
					mu.Lock()
					switch {
					case err == nil && r.ExitCode == 0:
						bound++
					case err == nil:
						t.Errorf("not what was opened: %+v", r)
					default:
						refused++
					}
					mu.Unlock()
				}
			})
		}
		for range launches {
			next <- struct{}{}
		}
		close(next)
		workers.Wait()
		close(stop)
		flips.Wait()
		t.Logf("bound %d, refused %d", bound, refused)
		if bound == 0 {
			t.Error("none succeeded")
		}
	})
}

func TestManyBinds(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "f")
		var ops []mounts.Op
		for i := range 2000 {
			ops = append(ops, mounts.Bind{Source: top, Dest: fmt.Sprintf("/many/%d/%d", i%10, i)})
		}
		if got := guest.Output(t, "ls -d /many/*/*/f | wc -l; grep -c /many /proc/self/mountinfo; cat /many/9/1999/f", ops...); got != "2000\n2000\nf" {
			t.Errorf("%q", got)
		}
	})
}

// As many directories may have to be made as a program has operations for.
func TestManyParents(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "rw/", "dir/f", "file")
		ops := []mounts.Op{mounts.Bind{Source: top + "/rw", Dest: "/rw", Mode: mounts.ReadWrite}}
		const many = 600
		for i := range many {
			ops = append(ops, mounts.Bind{Source: top + "/" + []string{"dir", "file"}[i%2], Dest: fmt.Sprintf("/rw/%d/parent/%d", i, i), Optional: i%3 == 0})
		}
		if got := guest.Output(t, "ls -d /rw/*/parent/* | wc -l", ops...); got != fmt.Sprint(many) {
			t.Errorf("%s of %d binds are there", got, many)
		}
	})
}

// What is mounted in the guest's own /proc goes on what is there, and on nothing
// else, whatever has been mounted there before.
func TestBindInProc(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "dir/f", "file")
		dir := func(dest string) mounts.Bind { return mounts.Bind{Source: top + "/dir", Dest: dest} }
		file := func(dest string) mounts.Bind { return mounts.Bind{Source: top + "/file", Dest: dest} }
		optional := func(b mounts.Bind) mounts.Bind { b.Optional = true; return b }
		missing := func(dest string) mounts.Bind {
			return mounts.Bind{Source: top + "/missing", Dest: dest, Optional: true}
		}

		got := guest.Output(t, "cat /proc/irq/f /proc/uptime /proc/bus/f /proc/version /proc/fs/f; test ! -e /proc/sys/f && test -e /proc/sys/kernel",
			missing("/proc/irq"), dir("/proc/irq"), file("/proc/irq/f"), missing("/proc/sys"), file("/proc/uptime"), dir("/proc/tty/../bus"),
			file("/proc/version"), optional(dir("/proc/tty/../fs")), missing("/proc/fs"))
		if want := "file\nfile\ndir/f\nfile\ndir/f"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, c := range []struct {
			bind  mounts.Bind
			step  string
			errno unix.Errno
		}{
			{dir("/proc/uptime"), mounts.DoOnFile, unix.ENOTDIR},
			{file("/proc/irq"), mounts.DoOnDir, unix.EINVAL},
			{dir("/proc/mounts"), mounts.DoOnLink, unix.ELOOP},
			{file("/proc/mounts"), mounts.DoOnLink, unix.ELOOP},
			{file("/proc/self"), mounts.DoOnLink, unix.ELOOP},
			{dir("/proc/new"), mounts.DoMkdir, unix.ENOENT},
			{file("/proc/new"), mounts.DoCreate, unix.ENOENT},
		} {
			for _, b := range []mounts.Bind{c.bind, optional(c.bind)} {
				if se := wantFailure(t, c.step, c.errno, b); se.On != b.Dest {
					t.Errorf("%s: failed on %s", b.Dest, se.On)
				}
			}
		}
	})
}
