//go:build linux

package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// Files in the workspace that would be dangerous on the host, where no mount
// flag makes them harmless.
var plantAttacks = attacks("plant",
	plant("chmod setuid", func(f string) error { return unix.Chmod(f, 0o4755) }),
	plant("chmod setgid", func(f string) error { return unix.Chmod(f, 0o2755) }),
	plant("fchmodat", func(f string) error { return unix.Fchmodat(unix.AT_FDCWD, f, 0o4755, 0) }),
	plant("fchmod", func(f string) error { return onFile(f, func(fd int) error { return unix.Fchmod(fd, 0o4755) }) }),
	plant("fchmod with high bits", func(f string) error {
		return onFile(f, func(fd int) error { return errnoOf(unix.SYS_FCHMOD, uintptr(fd), 0o4755|1<<40|1<<17) })
	}),
	plant("fchmodat2", func(f string) error {
		p := []byte(f + "\x00")
		return errnoOf(unix.SYS_FCHMODAT2, ^uintptr(99), uintptr(unsafe.Pointer(&p[0])), 0o4755, 0)
	}),
	plant("open", func(f string) error {
		fd, err := unix.Open(f+"2", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o4755)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}),
	plant("open unnamed", func(f string) error {
		fd, err := unix.Open("/workspace", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o4755)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}),
	attack{name: "openat2", do: func() error {
		fd, err := unix.Openat2(unix.AT_FDCWD, "/workspace/x", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o4755})
		if err == nil {
			unix.Close(fd)
		}
		return err
	}, blocked: []string{"ENOSYS"}, layers: []layer{seccomp}},
	plant("mknod", func(f string) error { return unix.Mknod(f+"2", unix.S_IFREG|0o4755, 0) }),
	plant("whiteout", func(f string) error { return unix.Mknod(f+"2", unix.S_IFCHR, 0) }),
	plant("whiteout by mknodat", func(f string) error { return unix.Mknodat(unix.AT_FDCWD, f+"2", unix.S_IFCHR, 0) }),
	attack{name: "file capability", do: func() error {
		return onFile("/workspace/x", func(fd int) error {
			// Version 3, CAP_NET_RAW, for namespaces whose root is the guest's user.
			capability := []byte{0, 0, 0, 3, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0, 0}
			return unix.Fsetxattr(fd, "security.capability", capability, 0)
		})
	}, blocked: []string{"EPERM"}, layers: []layer{caps}},
	attack{name: "another owner", do: func() error {
		return onFile("/workspace/x", func(fd int) error { return unix.Fchown(fd, 0, 0) })
	}, blocked: []string{"EINVAL", "EPERM"}, layers: []layer{oneUser}, rootOnly: true, noRights: "EINVAL"},
)

// oneUser is the map that has one user only. Without it, and with rights, a
// guest of root has every user.
var oneUser = layer{"ID map", func(s *nsexec.Spec) {
	caps.off(s)
	if isRoot() {
		all := []nsexec.IDMap{{Inside: 0, Outside: 0, Count: 65535}}
		s.UIDMap, s.GIDMap = all, all
	}
}}

func TestPlantedFiles(t *testing.T) { run(t, "plant", plantAttacks) }

func plant(name string, do func(file string) error) attack {
	return attack{name: name, do: func() error {
		const f = "/workspace/x"
		if err := os.WriteFile(f, nil, 0o755); err != nil {
			return err
		}
		return do(f)
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}}
}

// onFile opens a new file for do.
func onFile(name string, do func(fd int) error) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o755)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

// Devices proper cannot be made in any user namespace, so seccomp is told by a
// tint.
var mknodProbe = guest.Probe("mknod", func([]string) {
	for _, dev := range []struct {
		kind         uint32
		major, minor uint32
	}{{unix.S_IFCHR, 1, 1}, {unix.S_IFCHR, 1, 3}, {unix.S_IFBLK, 8, 0}, {unix.S_IFBLK, 254, 0}} {
		fmt.Print(outcome(unix.Mknod("/workspace/dev", dev.kind|0o666, int(unix.Mkdev(dev.major, dev.minor)))), " ")
	}
})

func TestDeviceFiles(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if got, want := inGuest(t, wall(t), mknodProbe, nil), "EPERM EPERM EPERM EPERM"; got != want {
			t.Errorf("behind the wall: %s, want %s", got, want)
		}
		if got, want := inGuest(t, wall(t), mknodProbe, nil, tinted), "EHWPOISON EHWPOISON EHWPOISON EHWPOISON"; got != want {
			t.Errorf("with a tinted filter: %s, want %s; it is not the filter that denies them", got, want)
		}
		if got, want := inGuest(t, wall(t), mknodProbe, nil, seccomp, caps), "EPERM EPERM EPERM EPERM"; got != want {
			t.Errorf("without seccomp and with capabilities: %s, want %s", got, want)
		}
	})
}

// Files the guest has read-only.
var readOnlyAttacks = attacks("ro",
	readOnly("create", func() error { return openTo("/ro/new", unix.O_CREAT|unix.O_WRONLY) }),
	readOnly("open for writing", func() error { return openTo("/ro/file", unix.O_WRONLY) }),
	readOnly("truncate", func() error { return unix.Truncate("/ro/file", 0) }),
	readOnly("remove", func() error { return unix.Unlink("/ro/file") }),
	readOnly("rename", func() error { return unix.Rename("/ro/file", "/ro/other") }),
	readOnly("mode", func() error { return unix.Chmod("/ro/file", 0o666) }),
	readOnly("times", func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, "/ro/file", nil, 0) }),
	readOnly("symlink", func() error { return unix.Symlink("x", "/ro/link") }),
	readOnly("attribute", func() error { return unix.Setxattr("/ro/file", "user.x", []byte("x"), 0) }),
	readOnly("link inside", func() error { return unix.Link("/ro/file", "/ro/link") }),
	attack{name: "remount", do: func() error {
		if err := unix.Mount("", "/ro", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return err
		}
		return openTo("/ro/file", unix.O_WRONLY)
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}, prepare: bindReadOnly},
	attack{name: "mount_setattr", do: func() error {
		err := unix.MountSetattr(unix.AT_FDCWD, "/ro", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err != nil {
			return err
		}
		return openTo("/ro/file", unix.O_WRONLY)
	}, blocked: []string{"ENOSYS"}, layers: []layer{seccomp, caps}, prepare: bindReadOnly},
	attack{name: "submount", do: func() error { return openTo("/hostdev/shm/"+os.Args[1], unix.O_CREAT|unix.O_WRONLY) },
		blocked: []string{"EROFS"}, layers: []layer{writable}, prepare: func(t *testing.T, p *postern.Profile) {
			if ok, err := mountinfo.Mounted("/dev/shm"); err != nil || !ok {
				testutil.Missing(t, "nothing is mounted on /dev/shm here")
			}
			p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: "/dev", Guest: "/hostdev"})
		}, alter: func(t *testing.T, s *nsexec.Spec) {
			name := fmt.Sprintf("postern-escape-%d", os.Getpid())
			t.Cleanup(func() { os.Remove("/dev/shm/" + name) })
			s.Args = append(s.Args, name)
		}},
	attack{name: "device on a bind", do: func() error { return openTo("/hostdev/null", unix.O_RDONLY) },
		blocked: []string{"EACCES"}, layers: []layer{{"nodev", func(s *nsexec.Spec) {
			edit(s, func(b *mounts.Bind) {
				if b.Dest == "/hostdev" {
					b.Mode = mounts.Device
				}
			})
		}}}, prepare: func(t *testing.T, p *postern.Profile) {
			p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: "/dev", Guest: "/hostdev"})
		}},
)

// writable makes the binds of these attacks writable.
var writable = layer{"read-only bind", func(s *nsexec.Spec) {
	edit(s, func(b *mounts.Bind) {
		if b.Dest == "/ro" || b.Dest == "/hostdev" {
			b.Mode = mounts.ReadWrite
		}
	})
}}

func TestReadOnly(t *testing.T) { run(t, "ro", readOnlyAttacks) }

func readOnly(name string, do func() error) attack {
	return attack{name: name, do: do, blocked: []string{"EROFS"}, layers: []layer{writable}, prepare: bindReadOnly}
}

func bindReadOnly(t *testing.T, p *postern.Profile) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", []byte("host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: dir, Guest: "/ro"})
}

var linkProbe = guest.Probe("link", func(args []string) {
	fmt.Println(outcome(unix.Link(args[0], args[1])))
})

// A guest cannot link a file that it may only read into its workspace, though
// both are on one file system.
func TestHardLinks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		bindReadOnly(t, &p)
		p.WritableBinds = append(p.WritableBinds, postern.Bind{Host: p.RequiredBinds[1].Host, Guest: "/rw"})
		for _, from := range []string{"/ro/file", "/rw/file"} {
			if got := inGuest(t, p, linkProbe, []string{from, "/workspace/link"}); got != "EXDEV" {
				t.Errorf("linking %s: %s, want EXDEV", from, got)
			}
		}
		if got := onHost(t, linkProbe, p.RequiredBinds[1].Host+"/file", p.Workspace+"/link"); got != through {
			t.Errorf("on the host: %s; this attack proves nothing", got)
		}
	})
}

// Every mount of a guest is where it should be, and as weak as it should be.
func TestMounts(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		list := func(off ...layer) []*mountinfo.Info {
			s, err := wall(t).Spec([]string{"cat", "/proc/self/mountinfo"})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range off {
				l.off(s)
			}
			list, err := mountinfo.GetMountsFromReader(strings.NewReader(guest.MustOutput(t, s)+"\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		for _, bad := range badMounts(list()) {
			t.Error(bad)
		}
		weak := layer{"all that makes mounts weak", func(s *nsexec.Spec) {
			fixedNodes.off(s)
			edit(s, func(b *mounts.Bind) { b.Mode = mounts.ReadWrite })
			edit(s, func(f *mounts.Tmpfs) { f.Size = 0 })
			s.Mounts.RootSize = 0
			s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{Source: "/", Dest: "/host"})
		}}
		bad := strings.Join(badMounts(list(weak)), "\n")
		for _, want := range []string{"/usr is writable", "/tmp has no size", "/ has no size", "/host is not expected", "/dev/null is writable"} {
			if !strings.Contains(bad, want) {
				t.Errorf("of a weak wall this test does not say %q, but\n%s\nit proves nothing", want, bad)
			}
		}
	})
}

// badMounts says what is wrong with a guest's mounts.
func badMounts(list []*mountinfo.Info) (bad []string) {
	own := map[string]bool{"/": true, "/tmp": true, "/dev": true, "/dev/shm": true, "/dev/pts": true, "/proc": true, "/workspace": true}
	expected := func(p string) bool {
		for _, dir := range []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", guestSelf} {
			if p == dir || strings.HasPrefix(p, dir+"/") {
				return true
			}
		}
		return own[p] || filepath.Dir(p) == "/proc" || filepath.Dir(p) == "/dev"
	}
	for _, m := range list {
		options := "," + m.Options + ","
		say := func(what string) { bad = append(bad, m.Mountpoint+" "+what+": "+m.Options+" "+m.VFSOptions) }
		if !expected(m.Mountpoint) {
			say("is not expected")
		}
		if !own[m.Mountpoint] && !strings.Contains(options, ",ro,") {
			say("is writable")
		}
		if !strings.Contains(options, ",nosuid,") {
			say("honours set-user-ID bits")
		}
		if m.FSType != "devtmpfs" && m.FSType != "devpts" && !strings.Contains(options, ",nodev,") {
			say("has devices")
		}
		if m.FSType == "tmpfs" && own[m.Mountpoint] && m.Mountpoint != "/workspace" {
			for _, limit := range []string{"size=", "nr_inodes="} {
				if !strings.Contains(m.VFSOptions, limit) {
					say("has no " + strings.Trim(limit, "="))
				}
			}
		}
		if m.Optional != "" {
			say("is " + m.Optional + ", connected to other mounts")
		}
		if strings.Contains(m.Mountpoint, "oldroot") {
			say("is the old root")
		}
	}
	return bad
}

// treeProbe lists what lies at the top of the tree and in /etc, and what of the
// host's can be reached from there.
var treeProbe = guest.Probe("tree", func([]string) {
	for _, dir := range []string{"/", "/etc", "/run", "/..", "/proc/self/root/.."} {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		fmt.Println(dir, strings.Join(names, " "), outcome(err))
	}
	for _, p := range []string{"/sys", "/home", "/root", "/var", "/boot", "/etc/passwd", "/etc/shadow", "/dev/fuse", "/dev/kvm", "/dev/mem", "/dev/vda"} {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			fmt.Println(p, outcome(err))
		}
	}
})

// Nothing of the host's tree is there that the profile does not name; neither
// is any file system by which a kernel is controlled.
func TestTree(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := "bin dev etc lib lib64 probe proc sbin tmp usr workspace got through"
		if _, err := os.Lstat("/lib64"); err != nil {
			top = strings.Replace(top, " lib64", "", 1)
		}
		want := []string{"/ " + top, "/etc ld.so.cache got through", "/run  ENOENT", "/.. " + top, "/proc/self/root/.. " + top}
		compare(t, "behind the wall", lines(inGuest(t, wall(t), treeProbe, nil)), want)
		if host := lines(onHost(t, treeProbe)); len(host) <= len(want) {
			t.Errorf("on the host: %q; this proves nothing", host)
		}
	})
}

// The cgroups of the host, by which CVE-2022-0492 runs a program as root.
var cgroupAttacks = attacks("cgroup",
	attack{name: "mount version 2", do: func() error { return unix.Mount("cgroup2", "/tmp", "cgroup2", 0, "") },
		blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
)

func TestCgroupMounts(t *testing.T) { run(t, "cgroup", cgroupAttacks) }

// mountCgroup mounts hierarchies of version 1.
var mountCgroup = guest.Probe("mount cgroup", func([]string) {
	for _, controller := range []string{"memory", "pids", "cpu", "rdma", "none,name=postern-escape"} {
		fmt.Print(outcome(unix.Mount("x", "/tmp", "cgroup", 0, controller)), ", ")
	}
})

func TestCgroupMountsOfVersion1(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, off := range [][]layer{nil, {seccomp}, {caps}} {
			if got, want := inGuest(t, wall(t), mountCgroup, nil, off...), strings.Repeat("EPERM, ", 5); got+" " != want {
				t.Errorf("mounting hierarchies without %d of the layers: %s", len(off), got)
			}
		}
		here, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
		if err != nil {
			t.Fatal(err)
		}
		if len(here) == 0 {
			return // a machine with version 2 only; TestDeniedCalls shows that mount is denied
		}
		if got := inGuest(t, wall(t), mountCgroup, nil, seccomp, caps); !strings.Contains(got, through) {
			t.Errorf("without the layers: %s; this attack proves nothing", got)
		}
	})
}

// cgroupFiles lists writable files of cgroups, and any release agent.
var cgroupFiles = guest.Probe("cgroup files", func([]string) {
	_, err := os.Lstat("/sys/fs/cgroup")
	fmt.Println("/sys/fs/cgroup", outcome(err))
	list, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !strings.HasPrefix(m.FSType, "cgroup"), false })
	fmt.Println(len(list), outcome(err))
	for _, m := range list {
		for _, name := range []string{"release_agent", "cgroup.procs", "notify_on_release"} {
			if openTo(m.Mountpoint+"/"+name, unix.O_WRONLY) == nil {
				fmt.Println(m.Mountpoint + "/" + name)
			}
		}
	}
})

func TestCgroupFiles(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		if got, want := inGuest(t, p, cgroupFiles, nil), "/sys/fs/cgroup ENOENT\n0 got through"; got != want {
			t.Errorf("a guest finds\n%s\nwant\n%s", got, want)
		}
		if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
			testutil.Missing(t, "no cgroups are mounted here")
		}
		p.WritableBinds = []postern.Bind{{Host: "/sys/fs/cgroup"}}
		if got := inGuest(t, p, cgroupFiles, nil); isRoot() && !strings.Contains(got, "/cgroup.procs") {
			t.Errorf("with the host's cgroups bound in a guest finds\n%s\nthis attack proves nothing", got)
		}
	})
}
