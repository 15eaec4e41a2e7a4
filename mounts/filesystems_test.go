//go:build linux

package mounts_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

func TestTmpfs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, c := range []struct {
			op   mounts.Tmpfs
			mode string
		}{
			{mounts.Tmpfs{}, "755"}, {mounts.Tmpfs{Perm: mounts.Perm(0o1777)}, "1777"}, {mounts.Tmpfs{Perm: mounts.Perm(fs.ModeSticky | 0o770)}, "1770"}, {mounts.Tmpfs{Perm: mounts.Perm(0)}, "0"},
			{mounts.Tmpfs{Size: 64 << 10}, "755"}, {mounts.Tmpfs{Inodes: 10}, "755"},
		} {
			c.op.Dest = "/t"
			got := guest.Output(t, `stat -c '%a %u' /t; grep -o ' /t [a-z,]*' /proc/self/mountinfo; (head -c 100000 /dev/zero >/t/big) 2>&1 | grep -o 'No space left' | head -1; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (: >/t/$i) 2>/dev/null || break; done; echo $i`, c.op)
			want := c.mode + " 65534\n /t rw,nosuid,nodev,relatime"
			last := "12"
			if c.op.Size > 0 {
				want += "\nNo space left"
			}
			if c.op.Inodes > 0 {
				last = "9"
			}
			if !strings.HasPrefix(got, want) || c.mode != "0" && !strings.HasSuffix(got, "\n"+last) {
				t.Errorf("%v: %q, want %q and %s", c.op, got, want, last)
			}
		}
		s := guest.Shell("(head -c 200000 /dev/zero >/big) 2>&1 | grep -o 'No space left'; touch /fits")
		s.Mounts.RootSize = 128 << 10
		if got := guest.MustOutput(t, s); got != "No space left" {
			t.Errorf("RootSize: %q", got)
		}
	})
}

var masks = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "no/such"}

// openable reports which files below directories can be opened for writing.
var openableProbe = guest.Probe("openable", func(dirs []string) {
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
					unix.Close(fd)
					fmt.Println(path)
				}
			}
			return nil
		})
	}
})

// Nothing below the masks can be written, also where the guest is root to the
// kernel, whom file modes and not capabilities decide about.
func TestProcMasks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dirs := []string{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger"}
		for _, host := range []bool{false, true} {
			s := guest.ProbeSpec(t, openableProbe, dirs, mounts.Proc{Dest: "/proc", Masks: masks, Host: host})
			if got := guest.MustOutput(t, s); got != "" {
				t.Errorf("Host %v: can write\n%s", host, got)
			}
			// The control: without masks the kernel's root can.
			s = guest.ProbeSpec(t, openableProbe, dirs, mounts.Proc{Dest: "/proc", Host: host})
			if got := guest.MustOutput(t, s); os.Geteuid() == 0 && !strings.Contains(got, "/proc/sys/kernel/core_pattern") {
				t.Errorf("Host %v: without masks can write only\n%s", host, got)
			}
		}
		// At any destination, known or not.
		for _, dest := range []string{"/p", "/usr/share", "/deep/p"} {
			got := guest.Output(t, "(: >"+dest+"/sys/kernel/hostname) 2>&1 | grep -o Read-only; test -d "+dest+"/self && grep -c ' "+dest+"/sys ro,nosuid,nodev,noexec' /proc/self/mountinfo", mounts.Proc{Dest: dest, Masks: masks})
			if got != "Read-only\n1" {
				t.Errorf("at %s: %q", dest, got)
			}
		}
	})
}

func TestProcIsTheGuestsOwn(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := guest.Output(t, "cd /proc && ls -d [0-9]* | sort -n | head -2 | tr '\\n' ' '; grep -o ' /proc [a-z,]*' self/mountinfo")
		if got != "1 2  /proc rw,nosuid,nodev,noexec,relatime" {
			t.Errorf("%q", got)
		}
		got = guest.Output(t, "ls -d /proc/[0-9]* 2>/dev/null | wc -l", mounts.Proc{Dest: "/proc", Host: true})
		var n int
		if fmt.Sscan(got, &n); n < 5 {
			t.Errorf("host's proc has %d processes", n)
		}
	})
}

func TestDev(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, dest := range []string{"/dev", "/d/dev", "/usr/share"} {
			got := guest.Output(t, "cd "+dest+` && ls | tr '\n' ' '; echo; readlink stdin stdout stderr fd core ptmx | tr '\n' ' '; echo
				echo x >null; head -c 3 zero | od -An -tx1; head -c 1 zero 2>&1 >full | grep -o 'No space left'; head -c 4 urandom | wc -c; head -c 4 random | wc -c
				stat -c '%a %n' shm pts . pts/ptmx | tr '\n' ' '; echo x >shm/x; touch new; ls pts; (: <tty) 2>&1 | grep -o 'No such device'; mknod sda b 8 0 2>&1 | grep -o 'not permitted'`, mounts.Dev{Dest: dest})
			want := "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero \n/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd /proc/kcore pts/ptmx \n" +
				" 00 00 00\nNo space left\n4\n4\n755 shm 755 pts 755 . 666 pts/ptmx ptmx\nNo such device\nnot permitted"
			if got != want {
				t.Errorf("at %s: %q, want %q", dest, got, want)
			}
		}
		// An own instance of devpts: the first terminal is number 0, whatever
		// the host has open.
		if got := guest.MustOutput(t, guest.ProbeSpec(t, ptyProbe, nil)); got != "/dev/pts/0 works" {
			t.Errorf("%q", got)
		}
		got := guest.Output(t, "(head -c 100000 /dev/zero >/dev/shm/x) 2>&1 | grep -o 'No space left'", mounts.Dev{Dest: "/dev", Size: 64 << 10})
		if got != "No space left" {
			t.Errorf("Size: %q", got)
		}
	})
}

var ptyProbe = guest.Probe("pty", func([]string) {
	master, name, err := openPTY()
	if err != nil {
		panic(err)
	}
	peer, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		panic(err)
	}
	master.WriteString("works\n")
	b := make([]byte, 100)
	n, _ := peer.Read(b)
	fmt.Print(name, " ", string(b[:n]))
})

func openPTY() (master *os.File, name string, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, "", err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	return master, fmt.Sprintf("/dev/pts/%d", n), err
}

func TestConsole(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		master, name, err := openPTY()
		if err != nil {
			testutil.Missing(t, "no terminal to be had: "+err.Error())
		}
		defer master.Close()
		peer, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		guest.Output(t, "test -c /dev/console && echo hello >/dev/console", mounts.Dev{Dest: "/dev", Console: name})
		b := make([]byte, 7)
		if n, err := master.Read(b); err != nil || string(b[:n]) != "hello\r\n" {
			t.Errorf("%q %v", b[:n], err)
		}
		guest.Output(t, "test ! -e /dev/console", mounts.Dev{Dest: "/dev"})
		wantFailure(t, mounts.DoDevice, unix.ENOENT, mounts.Dev{Dest: "/dev", Console: "/dev/missing"})
	})
}

func TestMqueue(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, dest := range []string{"/dev/mqueue", "/q", "/usr/share"} {
			if got := guest.Output(t, "grep -o ' "+dest+" .* mqueue' /proc/self/mountinfo | grep -c mqueue; ls "+dest, mounts.Mqueue{Dest: dest}); got != "1" {
				t.Errorf("at %s: %q", dest, got)
			}
		}
	})
}

func TestDirs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "there/", "link -> there", "file")
		if err := os.Chmod(top+"/there", 0o711); err != nil {
			t.Fatal(err)
		}
		bound := mounts.Bind{Source: top, Dest: "/b", Mode: mounts.ReadWrite}
		got := guest.Output(t, "stat -c '%a %n' /plain /mode /a /a/b /a/b/c /b/there /b/new /b/x /b/x/y /b/link/in",
			mounts.Dir{Dest: "/plain"}, mounts.Dir{Dest: "/mode", Perm: mounts.Perm(0o1775)}, mounts.Dir{Dest: "/a/b/c", Perm: mounts.Perm(0o700)}, bound,
			mounts.Dir{Dest: "/b/there", Perm: mounts.Perm(0o777)}, mounts.Dir{Dest: "/b/new", Perm: mounts.Perm(0o750)}, mounts.Dir{Dest: "/b/x/y", Perm: mounts.Perm(0o700)},
			mounts.Dir{Dest: "/b/link", Perm: mounts.Perm(0o777)}, mounts.Dir{Dest: "/b/link/in"}, mounts.Dir{Dest: "/"})
		want := "755 /plain\n1775 /mode\n700 /a\n700 /a/b\n700 /a/b/c\n711 /b/there\n750 /b/new\n700 /b/x\n700 /b/x/y\n755 /b/link/in"
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
		wantFailure(t, "", unix.ENOTDIR, bound, mounts.Dir{Dest: "/b/file"})
	})
}

func TestFiles(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "there", "dir/")
		bound := mounts.Bind{Source: top, Dest: "/b", Mode: mounts.ReadWrite}
		binary := "\x00\n\xff" + strings.Repeat("large", 100000)
		got := guest.Output(t, "stat -c '%a %s %n' /f /mode /b/there /b/new /b/dir/deep/er; md5sum </f; md5sum </b/new; cat /b/there /empty",
			mounts.File{Dest: "/f", Data: binary}, mounts.File{Dest: "/mode", Perm: mounts.Perm(0o4711)}, bound, mounts.File{Dest: "/b/there", Data: "now\n"}, mounts.File{Dest: "/b/new", Data: binary},
			mounts.File{Dest: "/b/dir/deep/er", Data: "x"}, mounts.File{Dest: "/empty"})
		sums := strings.Split(got, "\n")
		if len(sums) != 8 || sums[5] != sums[6] || sums[7] != "now" {
			t.Fatalf("%q", got)
		}
		if want := []string{"666 500003 /f", "4711 0 /mode", "644 4 /b/there", "666 500003 /b/new", "666 1 /b/dir/deep/er"}; !slices.Equal(sums[:5], want) {
			t.Errorf("%q, want %q", sums[:5], want)
		}
		if b, err := os.ReadFile(top + "/new"); err != nil || string(b) != binary {
			t.Errorf("not on the host: %v", err)
		}
		// A file system without room is an error of the launch.
		se := wantFailure(t, mounts.DoWrite, unix.ENOSPC, mounts.Tmpfs{Dest: "/t", Size: 64 << 10}, mounts.File{Dest: "/t/f", Data: binary})
		if se.On != "/t/f" || se.Hint == "" {
			t.Errorf("%v", se)
		}
		wantFailure(t, mounts.DoWrite, unix.ENOSPC, mounts.Tmpfs{Dest: "/t", Size: 64 << 10}, mounts.File{Dest: "/t/e", Data: strings.Repeat("x", 64<<10)}, mounts.File{Dest: "/t/f", Data: "x"})
	})
}

func TestBindData(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "file")
		for _, base := range [][]mounts.Op{nil, {mounts.Bind{Source: top, Dest: "/b", Mode: mounts.ReadWrite}}} {
			ops := append(base, mounts.BindData{Dest: "/b/ro", Data: "data\n"}, mounts.BindData{Dest: "/b/rw", Data: "data\n", Mode: mounts.ReadWrite, Perm: mounts.Perm(0o640)}, mounts.BindData{Dest: "/b/file", Data: "over\n"})
			got := guest.Output(t, `cd /b; cat ro rw file; stat -c '%a %n' ro rw; (echo x >ro) 2>&1 | grep -o 'Read-only'; echo x >rw; cat rw; rm -f ro rw file 2>&1 | grep -c 'busy'; mv ro x 2>&1 | grep -o busy; ls | tr '\n' ' '`, ops...)
			want := "data\ndata\nover\n600 ro\n640 rw\nRead-only\nx\n3\nbusy\nfile ro rw "
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if b, err := os.ReadFile(top + "/file"); err != nil || string(b) != "file\n" {
			t.Errorf("the host's file: %q, %v", b, err)
		}
	})
}

func TestChmod(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "file", "dir/", "link -> file")
		bound := mounts.Bind{Source: top, Dest: "/b", Mode: mounts.ReadWrite}
		got := guest.Output(t, "stat -c '%a' /f /d / /b/file /b/dir", mounts.File{Dest: "/f"}, mounts.Dir{Dest: "/d"}, bound, mounts.Chmod{Dest: "/f", Perm: 0o640}, mounts.Chmod{Dest: "/d", Perm: 0o1700},
			mounts.Chmod{Dest: "/", Perm: 0o711}, mounts.Chmod{Dest: "/b/file", Perm: fs.ModeSetgid | 0o755}, mounts.Chmod{Dest: "/b/dir", Perm: 0o700})
		if want := "640\n1700\n711\n2755\n700"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, dest := range []string{"/missing", "/b/missing", "/b/no/parent", "/no/parent"} {
			if se := wantFailure(t, "", unix.ENOENT, bound, mounts.Chmod{Dest: dest, Perm: 0o700}); se.On != dest {
				t.Errorf("%v", se)
			}
		}
		wantFailure(t, "", unix.ENOTDIR, mounts.File{Dest: "/f"}, mounts.Chmod{Dest: "/f/", Perm: 0o700})
		if got := files(t, top); !slices.Equal(got, []string{"dir/", "file", "link -> file"}) {
			t.Errorf("the host has %q", got)
		}
	})
}

func TestRemountReadOnly(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "f")
		for _, dest := range []string{"/b", "/usr/share", "/deep/b"} {
			got := guest.Output(t, "cd "+dest+"; (: >f) 2>&1 | grep -o Read-only; echo x >sub/new; grep -c '"+dest+" ro,nosuid,nodev' /proc/self/mountinfo",
				mounts.Bind{Source: top, Dest: dest, Mode: mounts.ReadWrite}, mounts.Tmpfs{Dest: dest + "/sub"}, mounts.RemountRO{Dest: dest})
			if got != "Read-only\n1" {
				t.Errorf("%s: %q", dest, got)
			}
		}
		wantFailure(t, mounts.DoRemount, unix.EINVAL, mounts.Dir{Dest: "/no-mount"}, mounts.RemountRO{Dest: "/no-mount"})
		wantFailure(t, mounts.DoRemount, unix.ENOENT, mounts.RemountRO{Dest: "/missing"})
	})
}

func TestOverlays(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "one/both", "one/low", "two/both", "two/high", "upper/", "work/")
		t.Cleanup(func() { os.Chmod(top+"/work/work", 0o700) }) // so that it can be removed
		lower := []string{top + "/one", top + "/two"}
		const show = "cd /o; cat both low high; (echo new >both) 2>&1 | grep -o Read-only; cat both; rm -f low; ls | tr '\\n' ' '; grep -o ' /o [a-z,]*' /proc/self/mountinfo"
		const read = "two/both\none/low\ntwo/high\n"
		for _, c := range []struct {
			op   mounts.Overlay
			want string
		}{
			{mounts.Overlay{}, read + "new\nboth high "},
			{mounts.Overlay{Size: 1 << 20}, read + "new\nboth high "},
			{mounts.Overlay{Upper: top + "/upper", Work: top + "/work"}, read + "new\nboth high "},
			{mounts.Overlay{ReadOnly: true}, read + "Read-only\ntwo/both\nboth high low "},
		} {
			c.op.Dest, c.op.Lower = "/o", lower
			flags := " /o rw,nosuid,nodev,relatime"
			if c.op.ReadOnly { // the kernel makes it so
				flags = ""
			}
			script := strings.Replace(show, "rm -f low", "rm -f low 2>/dev/null", 1)
			if got := guest.Output(t, script, c.op); !strings.HasPrefix(got, c.want) || !strings.Contains(got, flags) {
				t.Errorf("%v: %q, want %q", c.op, got, c.want)
			}
		}
		if b, err := os.ReadFile(top + "/upper/both"); err != nil || string(b) != "new\n" {
			t.Errorf("upper layer: %q, %v", b, err)
		}
		if b, err := os.ReadFile(top + "/two/both"); err != nil || string(b) != "two/both\n" {
			t.Errorf("lower layer: %q, %v", b, err)
		}
		if got := guest.Output(t, "(head -c 200000 /dev/zero >/o/big) 2>&1 | grep -o 'No space left'", mounts.Overlay{Dest: "/o", Lower: lower, Size: 64 << 10}); got != "No space left" {
			t.Errorf("Size: %q", got)
		}
		// Several, and one over the system's own directory.
		if got := guest.Output(t, "echo x >/usr/new; cat /usr/new /o1/low /o2/high", mounts.Overlay{Dest: "/usr", Lower: []string{"/usr"}}, mounts.Overlay{Dest: "/o1", Lower: lower[:1]}, mounts.Overlay{Dest: "/o2", Lower: lower[1:]}); got != "x\none/low\ntwo/high" {
			t.Errorf("%q", got)
		}
		if _, err := os.Stat("/usr/new"); err == nil {
			t.Error("written to the host")
		}
		wantFailure(t, mounts.DoOverlay, unix.ENOENT, mounts.Overlay{Dest: "/o", Lower: []string{top + "/missing"}})
	})
}
