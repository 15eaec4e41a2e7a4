//go:build linux

package escape

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// A user namespace of its own would give a guest every capability in it, and
// with them the parts of the kernel that most bugs are found in.
var namespaceAttacks = attacks("namespaces",
	attack{name: "unshare user", do: inChild(syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWUSER}), blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "clone user", do: inChild(syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}), blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "clone user with high bits", do: func() error { return rawClone(unix.CLONE_NEWUSER | 1<<40) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "clone3 user", do: func() error { return clone3(unix.CLONE_NEWUSER) }, blocked: []string{"ENOSYS"}, layers: []layer{seccomp}},
	attack{name: "clone3 plain", do: func() error { return clone3(0) }, blocked: []string{"ENOSYS"}, layers: []layer{seccomp}},
	attack{name: "unshare mounts", do: inChild(syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}), blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "clone network", do: inChild(syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}), blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "clone all but user", do: func() error {
		return rawClone(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "setns", do: func() error {
		fd, err := unix.Open("/proc/self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, 0)
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "chroot", do: func() error { return unix.Chroot("/tmp") }, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "host name", do: func() error {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		return unix.Sethostname([]byte(name))
	}, blocked: []string{"EPERM"}, layers: []layer{caps}},
)

func TestNewNamespaces(t *testing.T) { run(t, "namespaces", namespaceAttacks) }

// inChild starts a process in other namespaces.
func inChild(attr syscall.SysProcAttr) func() error {
	return func() error {
		attr := attr
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &attr
		return cmd.Run()
	}
}

// rawClone forks with flags that no library would pass.
func rawClone(flags uintptr) error {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	return afterFork(pid, errno)
}

func clone3(flags uint64) error {
	args := struct{ flags, pidfd, childTID, parentTID, signal, stack, size, tls uint64 }{flags: flags, signal: uint64(unix.SIGCHLD)}
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	return afterFork(pid, errno)
}

// afterFork ends the child at once: no more of Go works in it.
//
//go:nosplit
func afterFork(pid uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

var nsLinks = guest.Probe("namespace links", func([]string) {
	for _, n := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		link, err := os.Readlink("/proc/self/ns/" + n)
		fmt.Println(link, outcome(err))
	}
})

// None of the guest's namespaces is the host's.
func TestNamespacesAreNew(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		host := lines(onHost(t, nsLinks))
		got := lines(inGuest(t, wall(t), nsLinks, nil))
		if len(got) != 7 || len(host) != 7 {
			t.Fatalf("links %q and %q", got, host)
		}
		for i := range got {
			if got[i] == host[i] || !strings.HasSuffix(got[i], through) {
				t.Errorf("the guest's is %s, the host's %s", got[i], host[i])
			}
		}
		shared := lines(inGuest(t, wall(t), nsLinks, nil, netNS))
		if shared[3] != host[3] {
			t.Errorf("a shared network namespace is %s, not the host's %s; this proves nothing", shared[3], host[3])
		}
	})
}

// statusProbe prints what the kernel says of the guest's rights.
var statusProbe = guest.Probe("status", func([]string) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Println(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "NoNewPrivs", "Seccomp", "Seccomp_filters", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Uid", "Gid", "TracerPid":
			fmt.Println(name, strings.Join(strings.Fields(value), " "))
		}
	}
	for _, f := range []string{"uid_map", "gid_map", "setgroups"} {
		b, err := os.ReadFile("/proc/self/" + f)
		fmt.Println(f, strings.Join(strings.Fields(string(b)), " "), outcome(err))
	}
	fmt.Println("securebits", outcome(errnoOf(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0)))
	fmt.Println("new map", outcome(os.WriteFile("/proc/self/uid_map", []byte("0 0 1"), 0)))
	fmt.Println("setuid", outcome(errnoOf(unix.SYS_SETUID, 0)))
	fmt.Println("setgroups", outcome(errnoOf(unix.SYS_SETGROUPS, 0, 0)))
})

// The guest has no rights, exactly.
func TestStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want := fmt.Sprintf(`TracerPid 0
Uid 65534 65534 65534 65534
Gid 65534 65534 65534 65534
CapInh 0000000000000000
CapPrm 0000000000000000
CapEff 0000000000000000
CapBnd 0000000000000000
CapAmb 0000000000000000
NoNewPrivs 1
Seccomp 2
Seccomp_filters 1
uid_map 65534 %d 1 got through
gid_map 65534 %d 1 got through
setgroups deny got through
securebits EPERM
new map EPERM
setuid EINVAL
setgroups EPERM`, os.Geteuid(), os.Getegid())
		p := wall(t)
		if got := inGuest(t, p, statusProbe, nil); got != want {
			t.Errorf("the guest has\n%s\nwant\n%s", got, want)
		}
		// A user who is called root has no more.
		p.GuestUID, p.GuestGID = postern.NumericID(0), postern.NumericID(0)
		root := strings.NewReplacer("Uid 65534 65534 65534 65534", "Uid 0 0 0 0", "Gid 65534 65534 65534 65534", "Gid 0 0 0 0",
			"_map 65534 ", "_map 0 ", "setuid EINVAL", "setuid got through").Replace(want)
		if got := inGuest(t, p, statusProbe, nil); got != root {
			t.Errorf("a guest called root has\n%s\nwant\n%s", got, root)
		}
		p = wall(t)
		weak := inGuest(t, p, statusProbe, nil, seccomp, caps, layer{"no_new_privs", func(s *nsexec.Spec) { s.AllowNewPrivs = true }})
		for _, line := range lines(weak) {
			what := strings.Fields(line)
			switch what[0] {
			case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "securebits":
				if strings.Contains(want, line+"\n") {
					t.Errorf("without the layers the guest still has %s; this proves nothing", line)
				}
			}
		}
	})
}

// Neither has the init.
func TestStatusOfInit(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		status := func(off ...layer) string {
			s, err := wall(t).Spec([]string{"grep", "-E", "^(Cap|NoNew|Seccomp:)", "/proc/1/status"})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range off {
				l.off(s)
			}
			return strings.ReplaceAll(ended(guest.Run(t, s)), "\t", " ")
		}
		const none = "0000000000000000"
		want := "CapInh: " + none + "\nCapPrm: " + none + "\nCapEff: " + none + "\nCapBnd: " + none + "\nCapAmb: " + none + "\nNoNewPrivs: 1\nSeccomp: 2"
		if got := status(); got != want {
			t.Errorf("the init has\n%s\nwant\n%s", got, want)
		}
		if got := status(seccomp, layer{"all", func(s *nsexec.Spec) { s.Caps, s.KeepCaps, s.AllowNewPrivs = nsexec.AllCaps, true, true }}); got == want {
			t.Error("without the layers it has the same; this proves nothing")
		}
	})
}
