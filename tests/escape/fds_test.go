//go:build linux

package escape

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// fdsProbe prints what is wrong with the descriptors and the directory it was
// started with: CVE-2024-21626.
var fdsProbe = guest.Probe("descriptors", func([]string) {
	for fd := range 5000 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if strings.HasPrefix(link, "anon_inode:[event") {
			continue // the Go runtime's own
		}
		if fd > 2 {
			fmt.Printf("descriptor %d is open\n", fd)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			fmt.Printf("descriptor %d is a directory\n", fd)
		}
		if out, err := unix.Openat(fd, "../../../../../../etc/hostname", unix.O_PATH, 0); err == nil {
			fmt.Printf("descriptor %d leads to the host\n", fd)
			unix.Close(out)
		}
	}
	cwd, err := os.Readlink("/proc/self/cwd")
	fmt.Println("in", cwd, outcome(err))
	if openTo("/etc/hostname", unix.O_PATH) == nil || openTo("../../../etc/hostname", unix.O_PATH) == nil {
		fmt.Println("the root is the host's")
	}
	if root, err := os.Readlink("/proc/self/root"); root != "/" {
		fmt.Println("the root is", root, err)
	}
})

// A descriptor that the host forgot to mark close-on-exec does not reach a
// guest, however large its number is.
func TestLeakedDescriptors(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir, err := unix.Open("/", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(dir)
		const far = 2048
		if err := unix.Dup3(dir, far, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(far)

		p := wall(t)
		const want = "in /workspace got through"
		if got := inGuest(t, p, fdsProbe, nil); got != want {
			t.Errorf("a guest says\n%s\nwant\n%s", got, want)
		}
		kept := inGuest(t, p, fdsProbe, nil, layer{"closing", func(s *nsexec.Spec) { s.KeepFDs = true }})
		if !strings.Contains(kept, "descriptor 2048 leads to the host") {
			t.Errorf("with KeepFDs it says\n%s\nthis attack proves nothing", kept)
		}
	})
}

// A directory as a standard stream, or as a further descriptor, is refused
// however it was opened.
func TestDirectoryAsDescriptor(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		for _, flags := range []int{unix.O_RDONLY, unix.O_PATH} {
			fd, err := unix.Open("/", flags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			dir := os.NewFile(uintptr(fd), "/")
			for field, give := range map[string]func(*nsexec.Spec){
				"Stdin":    func(s *nsexec.Spec) { s.Stdin = dir },
				"Stdout":   func(s *nsexec.Spec) { s.Stdout = dir },
				"Stderr":   func(s *nsexec.Spec) { s.Stderr = dir },
				"Files[0]": func(s *nsexec.Spec) { s.Files = []*os.File{dir} },
			} {
				s := spec(t, p, fdsProbe)
				give(s)
				_, err := nsexec.Start(s)
				var bad *nsexec.SpecError
				if !errors.As(err, &bad) || bad.Field != field {
					t.Errorf("%s with flags %#x: %v", field, flags, err)
				}
			}
			// The control: what it would have been good for.
			s := spec(t, p, fdsProbe)
			s.Stdin, s.KeepFDs = dir, true
			if got := ended(guest.Run(t, s)); !strings.Contains(got, "descriptor 0 leads to the host") {
				t.Errorf("a directory that is not refused: %s; this attack proves nothing", got)
			}
			dir.Close()
		}
	})
}

// Through a descriptor of a device that guest and host share, root in the
// kernel could change its mode for the whole host.
var deviceAttacks = attacks("device",
	touch("mode of standard input", func() error { return unix.Fchmod(0, 0o666) }),
	touch("mode by its path in proc", func() error { return unix.Chmod("/proc/self/fd/0", 0o666) }),
	touch("mode of null", func() error { return unix.Chmod("/dev/null", 0o666) }),
	touch("mode of zero", func() error { return unix.Chmod("/dev/zero", 0o666) }),
	touch("mode of full", func() error { return unix.Chmod("/dev/full", 0o666) }),
	touch("mode of random", func() error { return unix.Chmod("/dev/random", 0o666) }),
	touch("mode of urandom", func() error { return unix.Chmod("/dev/urandom", 0o666) }),
	touch("mode of tty", func() error { return unix.Chmod("/dev/tty", 0o666) }),
	attack{name: "remount null", do: func() error {
		return unix.Mount("", "/dev/null", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
)

// touch sets something to what it already is.
func touch(name string, do func() error) attack {
	return attack{name: name, do: do, blocked: []string{"EROFS"}, layers: []layer{fixedNodes}, rootOnly: true, noRights: "EPERM"}
}

func TestDeviceNodes(t *testing.T) { run(t, "device", deviceAttacks) }

var devListing = guest.Probe("dev", func([]string) {
	entries, err := os.ReadDir("/dev")
	for _, e := range entries {
		var st unix.Stat_t
		if serr := unix.Lstat("/dev/"+e.Name(), &st); serr != nil {
			err = errors.Join(err, serr)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			fmt.Printf("%s=%d:%d ", e.Name(), unix.Major(st.Rdev), unix.Minor(st.Rdev))
		case unix.S_IFBLK:
			fmt.Printf("%s=block ", e.Name())
		}
	}
	if err != nil {
		fmt.Println(err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := openTo("/dev/"+name, unix.O_RDWR); err != nil {
			fmt.Printf("%s does not work: %s ", name, outcome(err))
		}
	}
})

// A guest has harmless devices, they are what they are called, and they work.
func TestDevices(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := inGuest(t, wall(t), devListing, nil)
		if want := "full=1:7 null=1:3 random=1:8 tty=5:0 urandom=1:9 zero=1:5"; got != want {
			t.Errorf("devices: %s, want %s", got, want)
		}
		if host := onHost(t, devListing); host == got {
			t.Error("the host has the same devices; this proves nothing")
		}
	})
}
