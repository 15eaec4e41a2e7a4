//go:build linux

package escape

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// denied are calls no guest may make, by what they return. The list is not
// derived from the policy, on purpose. Architectures lack some of them.
var denied = map[string]string{
	"EPERM": `unshare setns mount umount2 pivot_root chroot listns
		add_key keyctl request_key
		ptrace perf_event_open process_vm_readv process_vm_writev pidfd_getfd kcmp
		move_pages mbind get_mempolicy set_mempolicy migrate_pages set_mempolicy_home_node
		syslog uselib acct quotactl quotactl_fd iopl ioperm vhangup settimeofday clock_settime
		bpf init_module finit_module delete_module kexec_load kexec_file_load
		reboot swapon swapoff io_uring_setup io_uring_enter io_uring_register
		open_by_handle_at name_to_handle_at userfaultfd fanotify_init lookup_dcookie modify_ldt`,
	"ENOSYS": `clone3 open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr openat2`,
}

// rawCalls makes the system calls named, by number and without arguments.
var rawCalls = guest.Probe("raw calls", func(names []string) {
	abi, err := seccompbpf.ForArch(runtime.GOARCH)
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		if nr, ok := abi.Number(name); ok {
			fmt.Println(name, outcome(errnoOf(uintptr(nr))))
		}
	}
	fmt.Println("unknown", outcome(errnoOf(999)))
})

// tinted is seccomp with another errno, by which the filter's answers can be
// told from the kernel's own.
var tinted = layer{"tinted filter", func(s *nsexec.Spec) {
	p := seccompbpf.Hardened()
	tint := seccompbpf.Errno(uint16(unix.EHWPOISON))
	p.Rules = slices.Clone(p.Rules)
	for i, r := range p.Rules {
		if _, ok := r.Action.Errno(); ok && r.Syscall != "clone3" { // the C library needs its ENOSYS
			p.Rules[i].Action = tint
		}
	}
	p.Unlisted = tint
	f, err := p.CompileFor(runtime.GOARCH)
	if err != nil {
		panic(err)
	}
	s.Seccomp = []seccompbpf.Filter{f}
}}

// Every call on the list is denied, with the errno that programs cope with,
// and it is the filter that denies it.
func TestDeniedCalls(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want, poisoned := []string{}, []string{}
		var names []string
		abi, err := seccompbpf.ForArch(runtime.GOARCH)
		if err != nil {
			t.Fatal(err)
		}
		for errno, list := range denied {
			for _, name := range strings.Fields(list) {
				if _, ok := abi.Number(name); ok {
					names = append(names, name)
					want = append(want, name+" "+errno)
					if name == "clone3" {
						poisoned = append(poisoned, "clone3 ENOSYS")
					} else {
						poisoned = append(poisoned, name+" EHWPOISON")
					}
				}
			}
		}
		if len(names) < 50 {
			t.Fatalf("only %q exist here", names)
		}
		want, poisoned = append(want, "unknown ENOSYS"), append(poisoned, "unknown EHWPOISON")
		p := wall(t)
		compare(t, "behind the wall", lines(inGuest(t, p, rawCalls, names)), want)
		compare(t, "with a tinted filter", lines(inGuest(t, p, rawCalls, names, tinted)), poisoned)
	})
}

func compare(t *testing.T, where string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d answers, want %d: %.2000q", where, len(got), len(want), got)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: %s, want %s", where, got[i], want[i])
		}
	}
}

// Calls that work for anybody outside, with arguments they accept.
var callAttacks = attacks("calls",
	attack{name: "io_uring", do: func() error {
		var params [120]byte
		return errnoOf(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])))
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "read another process", do: func() error {
		from, to := byte(7), byte(0)
		src, dst := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&from)), Len: 1}, unix.Iovec{Base: &to}
		dst.SetLen(1)
		_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{dst}, []unix.RemoteIovec{src}, 0)
		return err
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "trace", do: func() error { return errnoOf(unix.SYS_PTRACE, unix.PTRACE_TRACEME) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "compare", do: func() error {
		return errnoOf(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getpid()), 1)
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "file handle", do: func() error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/usr", 0)
		return err
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "userfaultfd", do: func() error { return errnoOf(unix.SYS_USERFAULTFD, 1) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}}, // UFFD_USER_MODE_ONLY
	attack{name: "descriptor of another process", do: func() error {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "fanotify", do: func() error {
		_, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, 0)
		return err
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "READ_IMPLIES_EXEC", do: func() error { return errnoOf(unix.SYS_PERSONALITY, 0x0400000) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "READ_IMPLIES_EXEC with high bits", do: func() error { return errnoOf(unix.SYS_PERSONALITY, 0x0400000|1<<32) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "no address randomisation", do: func() error { return errnoOf(unix.SYS_PERSONALITY, 0x0040000) }, blocked: []string{"EPERM"}, layers: []layer{seccomp}},
	attack{name: "another file system", do: func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "another file system, new calls", do: func() error { _, err := unix.Fsopen("tmpfs", 0); return err }, blocked: []string{"ENOSYS"}, layers: []layer{seccomp, caps}},
	attack{name: "another overlay", do: func() error {
		for _, d := range []string{"/tmp/l", "/tmp/u", "/tmp/w"} {
			if err := unix.Mkdir(d, 0o755); err != nil {
				return err
			}
		}
		return unix.Mount("overlay", "/tmp", "overlay", 0, "lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w,userxattr")
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "another devpts", do: func() error { return unix.Mount("devpts", "/tmp", "devpts", 0, "newinstance") }, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "bind", do: func() error { return unix.Mount("/usr", "/tmp", "", unix.MS_BIND, "") }, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "clone of a mount", do: func() error {
		_, err := unix.OpenTree(unix.AT_FDCWD, "/usr", unix.OPEN_TREE_CLONE)
		return err
	}, blocked: []string{"ENOSYS"}, layers: []layer{seccomp, caps}},
)

func TestCalls(t *testing.T) { run(t, "calls", callAttacks) }

// A guest cannot take the filter off, and can put another on.
var moreFilters = guest.Probe("more filters", func([]string) {
	runtime.LockOSThread()
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: uint32(seccompbpf.Allow)}}
	prog := unix.SockFprog{Len: 1, Filter: &allow[0]}
	fmt.Println("filter", outcome(errnoOf(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))))
	fmt.Println("io_uring", outcome(errnoOf(unix.SYS_IO_URING_SETUP, 1, 0)))
})

func TestFilterStays(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if got, want := inGuest(t, wall(t), moreFilters, nil), "filter got through\nio_uring EPERM"; got != want {
			t.Errorf("after a filter that allows everything: %s, want %s", got, want)
		}
		if got := inGuest(t, wall(t), moreFilters, nil, seccomp); !strings.HasSuffix(got, "io_uring EFAULT") {
			t.Errorf("without seccomp: %s; this attack proves nothing", got)
		}
	})
}

// The other instruction sets and calling conventions of one kernel.

// x32 makes calls by the numbers of x32, which the kernel may not have and a
// guest never has: not even a harmless one.
var x32 = guest.Probe("x32", func([]string) {
	const bit = 0x40000000
	for _, nr := range []uintptr{unix.SYS_UNSHARE, unix.SYS_KEXEC_LOAD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_GETPID} {
		fmt.Print(outcome(errnoOf(nr|bit)), " ")
	}
})

func TestX32(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // has no such thing
	}
	testutil.EachUser(t, func(t *testing.T) {
		all := func(errno string) []string { return slices.Repeat([]string{errno}, 4) }
		compare(t, "behind the wall", strings.Fields(inGuest(t, wall(t), x32, nil)), all("ENOSYS"))
		compare(t, "with a tinted filter", strings.Fields(inGuest(t, wall(t), x32, nil, tinted)), all("EHWPOISON"))
	})
}

// int80 is a program that makes a call of the 32-bit kind and exits with its
// errno. On a kernel without them the instruction is a fault.
func int80(nr byte) []byte {
	code := []byte{
		0xb8, nr, 0, 0, 0, // mov eax, nr
		0xbb, 0, 0, 0, 0x10, // mov ebx, CLONE_NEWUSER
		0xcd, 0x80, // int 0x80
		0xf7, 0xd8, // neg eax
		0x89, 0xc7, // mov edi, eax
		0xb8, 231, 0, 0, 0, // mov eax, exit_group
		0x0f, 0x05, // syscall
	}
	return elf64(code)
}

// elf64 is the smallest program for amd64 with this code.
func elf64(code []byte) []byte {
	const base, header = 0x400000, 64 + 56
	b := make([]byte, header, header+len(code))
	copy(b, "\x7fELF\x02\x01\x01")
	put := func(off int, size int, v uint64) {
		for i := range size {
			b[off+i] = byte(v >> (8 * i))
		}
	}
	put(16, 2, 2)  // executable
	put(18, 2, 62) // x86-64
	put(20, 4, 1)
	put(24, 8, base+header) // entry
	put(32, 8, 64)          // program headers
	put(52, 2, 64)
	put(54, 2, 56)
	put(56, 2, 1)
	put(64, 4, 1) // PT_LOAD
	put(68, 4, 5) // readable and executable
	put(80, 8, base)
	put(88, 8, base)
	put(96, 8, uint64(header+len(code)))
	put(104, 8, uint64(header+len(code)))
	put(112, 8, 0x1000)
	return append(b, code...)
}

func TestInt80(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // has no such thing
	}
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		i386, _ := seccompbpf.ForArch("386")
		run := func(syscall string, off ...layer) int {
			nr, ok := i386.Number(syscall)
			if !ok || nr > 255 {
				nr = 0
			}
			file := p.Workspace + "/" + syscall
			if err := os.WriteFile(file, int80(byte(nr)), 0o755); err != nil {
				t.Fatal(err)
			}
			if syscall == "unshare" { // 310 takes two bytes
				b := int80(0)
				b[64+56+1], b[64+56+2] = byte(nr), byte(nr>>8)
				nr, _ := i386.Number("unshare")
				b[64+56+1], b[64+56+2] = byte(nr), byte(nr>>8)
				if err := os.WriteFile(file, b, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			s, err := p.Spec([]string{"/workspace/" + syscall})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range off {
				l.off(s)
			}
			return guest.Run(t, s).ExitCode
		}
		const fault = 128 + int(unix.SIGSEGV)
		off := run("unshare", seccomp)
		if off == fault {
			if got := run("unshare"); got != fault {
				t.Errorf("this kernel has no 32-bit calls without a filter, and with one the program ends with %d", got)
			}
			return // TestCompatFilter has the rest
		}
		if got := run("unshare"); got != int(unix.EPERM) || off != 0 {
			t.Errorf("unshare by int 0x80 ends with errno %d, and %d without a filter; want %d and 0", got, off, int(unix.EPERM))
		}
	})
}

// The filter that a guest has denies the calls by every ABI of this machine's
// kernel family, whether or not this kernel has it, and kills on those of others.
func TestCompatFilter(t *testing.T) {
	s, err := profileHere().Spec([]string{guestSelf})
	if err != nil || len(s.Seccomp) != 1 {
		t.Fatalf("%d filters, %v", len(s.Seccomp), err)
	}
	verdict := func(arch, nr uint32, args ...uint64) seccompbpf.Action {
		d := seccompbpf.Data{Arch: arch, Nr: nr}
		copy(d.Args[:], args)
		return s.Seccomp[0].Verdict(d)
	}
	family := map[seccompbpf.ABI]string{
		seccompbpf.AMD64: "amd64", seccompbpf.I386: "amd64", seccompbpf.X32: "amd64",
		seccompbpf.ARM64: "arm64", seccompbpf.ARM: "arm64",
	}
	for _, abi := range seccompbpf.ABIs() {
		getpid, _ := abi.Number("getpid")
		want := seccompbpf.Allow // or this proves nothing
		switch {
		case family[abi] != runtime.GOARCH:
			want = seccompbpf.KillProcess
		case abi == seccompbpf.X32:
			want = seccompbpf.ENOSYS
		}
		if got := verdict(abi.AuditArch(), getpid); got != want {
			t.Errorf("%s: getpid gets %v, want %v", abi, got, want)
		}
		for errno, list := range denied {
			for _, name := range strings.Fields(list) {
				nr, ok := abi.Number(name)
				if !ok {
					continue
				}
				want := want.String()
				if want == seccompbpf.Allow.String() {
					want = errno
				}
				if got := verdict(abi.AuditArch(), nr).String(); got != want {
					t.Errorf("%s: %s gets %s, want %s", abi, name, got, want)
				}
			}
		}
	}
	const ppc64 = 0x80000015
	if got := verdict(ppc64, 20); got != seccompbpf.KillProcess {
		t.Errorf("an architecture that is not covered gets %v", got)
	}
}
