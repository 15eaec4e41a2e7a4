//go:build linux

package nsexec_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

func TestPreflight(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			if err := nsexec.Preflight(); err != nil {
				t.Error(err)
			}
		})
	})
}

// What is lacking is told from described machines.
func TestLacks(t *testing.T) {
	fine := nsexec.Machine{Arch: true, Seccomp: true, ProcFS: true, Release: "6.1.0-13-amd64", Euid: 1000,
		Files: map[string]string{"/proc/sys/user/max_user_namespaces": "127337", "/proc/self/uid_map": "0 0 4294967295", "/proc/sys/vm/memfd_noexec": "0"}}
	with := func(change func(*nsexec.Machine), files ...string) nsexec.Machine {
		m := fine
		m.Files = map[string]string{}
		for k, v := range fine.Files {
			m.Files[k] = v
		}
		for i := 0; i < len(files); i += 2 {
			m.Files[files[i]] = files[i+1]
		}
		if change != nil {
			change(&m)
		}
		return m
	}
	root := func(m *nsexec.Machine) { m.Euid = 0 }
	const (
		apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
		label    = "/proc/self/attr/apparmor/current"
		clone    = "/proc/sys/kernel/unprivileged_userns_clone"
		maxNS    = "/proc/sys/user/max_user_namespaces"
		noexec   = "/proc/sys/vm/memfd_noexec"
	)
	for _, c := range []struct {
		name   string
		m      nsexec.Machine
		want   []error
		remedy string
	}{
		{"nothing", fine, nil, ""},
		{"a new machine", with(nil, clone, "1", apparmor, "0", noexec, "1"), nil, ""},
		{"Ubuntu", with(nil, apparmor, "1"), []error{nsexec.ErrUsernsRestricted}, "userns,"},
		{"Ubuntu, unconfined", with(nil, apparmor, "1", label, "unconfined"), []error{nsexec.ErrUsernsRestricted}, "userns,"},
		{"Ubuntu, with a profile", with(nil, apparmor, "1", label, "postern (unconfined)"), nil, ""},
		{"Ubuntu, as root", with(root, apparmor, "1"), nil, ""},
		{"old Debian", with(nil, clone, "0"), []error{nsexec.ErrNoUserns}, "unprivileged_userns_clone to 1"},
		{"old Debian, as root", with(root, clone, "0"), nil, ""},
		{"no user namespaces", with(root, maxNS, "0"), []error{nsexec.ErrNoUserns}, "max_user_namespaces"},
		{"a kernel without them", with(func(m *nsexec.Machine) { delete(m.Files, maxNS); delete(m.Files, "/proc/self/uid_map") }), []error{nsexec.ErrNoUserns}, "CONFIG_USER_NS"},
		{"old kernel", with(func(m *nsexec.Machine) { m.Release = "5.4.0"; m.Missing = []string{"openat2", "mount_setattr"} }), []error{nsexec.ErrKernelTooOld}, "Linux 5.12"},
		{"almost new enough", with(func(m *nsexec.Machine) { m.Release = "5.11.22"; m.Missing = []string{"mount_setattr"} }), []error{nsexec.ErrKernelTooOld}, "Linux 5.12"},
		{"old by number only", with(func(m *nsexec.Machine) { m.Release = "4.18.0-513.el8" }), nil, ""},
		{"systemd", with(func(m *nsexec.Machine) { m.Missing = []string{"openat2"} }), []error{nsexec.ErrSyscallHidden}, "RestrictSUIDSGID"},
		{"strange release", with(func(m *nsexec.Machine) { m.Release = "custom"; m.Missing = []string{"openat2"} }), []error{nsexec.ErrSyscallHidden}, ""},
		{"memfd_noexec", with(nil, noexec, "2"), []error{nsexec.ErrMemfdNoexec}, "memfd_noexec"},
		{"no seccomp", with(func(m *nsexec.Machine) { m.Seccomp = false }), []error{nsexec.ErrNoSeccomp}, "CONFIG_SECCOMP"},
		{"no stage", with(func(m *nsexec.Machine) { m.Arch = false }), []error{nsexec.ErrUnsupportedArch}, "amd64"},
		{"no proc", with(func(m *nsexec.Machine) { m.ProcFS = false; m.Files = nil }), []error{nsexec.ErrNoProc}, "mount"},
		{"several", with(func(m *nsexec.Machine) { m.Seccomp = false; m.Missing = []string{"openat2"} }, maxNS, "0", apparmor, "1"),
			[]error{nsexec.ErrSyscallHidden, nsexec.ErrNoSeccomp, nsexec.ErrNoUserns, nsexec.ErrUsernsRestricted}, ""},
	} {
		got := nsexec.Lacks(c.m)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i, err := range got {
			var pe *nsexec.PreflightError
			if !errors.Is(err, c.want[i]) || !errors.As(err, &pe) || pe.Reason == "" || pe.Remedy == "" {
				t.Errorf("%s: %#v, want %v", c.name, err, c.want[i])
			}
			if !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("%s: no %q in %q", c.name, c.remedy, err)
			}
		}
	}
}

func TestExplainFailedLaunch(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{&nsexec.StartError{Step: nsexec.DoUnshare, Errno: unix.EPERM}, nsexec.ErrNoUserns},
		{&nsexec.StartError{Step: nsexec.DoUnshare, Errno: unix.ENOSPC}, nsexec.ErrNoUserns},
		{&nsexec.StartError{Step: nsexec.DoUnshare, Errno: unix.ENOMEM}, nsexec.ErrLaunch},
		{&nsexec.StartError{Step: nsexec.DoMap, On: "uid", Errno: unix.EACCES}, nsexec.ErrUsernsRestricted},
		{&nsexec.StartError{Step: nsexec.DoMap, On: "uid", Errno: unix.EROFS}, nsexec.ErrNoProc},
		{&nsexec.StartError{Step: nsexec.DoSetgroups, Errno: unix.EACCES}, nsexec.ErrUsernsRestricted},
		{&nsexec.StartError{Step: nsexec.DoLoopback, Errno: unix.EPERM}, nsexec.ErrUsernsRestricted},
		{&nsexec.StartError{Step: mounts.DoSlave, Errno: unix.EACCES}, nsexec.ErrUsernsRestricted},
		{&nsexec.StartError{Step: mounts.DoProc, On: "/proc", Errno: unix.EPERM}, nsexec.ErrProcMasked},
		{&nsexec.StartError{Step: mounts.DoOpenDest, Errno: unix.ENOSYS}, nsexec.ErrSyscallHidden},
		{&nsexec.StartError{Step: mounts.DoRoot, Errno: unix.EINVAL}, nsexec.ErrLaunch},
		{nsexec.ErrKilled, nsexec.ErrLaunch},
	} {
		err := nsexec.Explain(c.err)
		var pe *nsexec.PreflightError
		if !errors.Is(err, c.want) || !errors.Is(err, c.err) || !errors.As(err, &pe) || pe.Reason == "" || pe.Remedy == "" {
			t.Errorf("%v: %v, want %v", c.err, err, c.want)
		}
	}
}

// preflightProbe is a Preflight in surroundings that lack something.
var preflightProbe = guest.Probe("preflight", func(args []string) {
	if len(args) > 0 && args[0] == "no openat2" {
		hide("openat2")
	}
	err := nsexec.Preflight()
	for _, lack := range []error{nsexec.ErrNoUserns, nsexec.ErrUsernsRestricted, nsexec.ErrProcMasked, nsexec.ErrSyscallHidden, nsexec.ErrNoProc, nsexec.ErrLaunch, nsexec.ErrMemfdNoexec} {
		if errors.Is(err, lack) {
			fmt.Println("lack:", lack)
		}
	}
	fmt.Println("text:", err)
})

// hide makes a system call answer ENOSYS for this whole process.
func hide(call string) {
	f, err := (seccompbpf.Policy{Name: "hide", Default: seccompbpf.Allow, Unlisted: seccompbpf.Allow,
		Rules: []seccompbpf.Rule{{Syscall: call, Action: seccompbpf.Errno(uint16(unix.ENOSYS))}}}).Compile()
	if err != nil {
		panic(err)
	}
	raw := f.Bytes()
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		panic(errno)
	}
}

// preflight runs Preflight under a command line that makes the surroundings;
// $PROBE in it is the program to run there.
func preflight(t *testing.T, script string) string {
	t.Helper()
	testutil.RequireTool(t, "unshare")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), guest.ProbeEnv(preflightProbe), "PROBE="+exe)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func TestPreflightWhereItLacks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, c := range []struct {
			name, script string
			root         bool
			want         string
		}{
			{"nothing", `"$PROBE"`, false, "text: <nil>"},
			{"no user namespaces", `unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$PROBE"'`, false, "lack: user namespaces are off"},
			{"no network namespaces", `unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_net_namespaces; exec "$PROBE"'`, false, "lack: user namespaces are off"},
			{"masked proc", `unshare -m sh -c 'mount -t tmpfs -o ro tmpfs /proc/acpi; exec unshare -Ur "$PROBE"'`, true, "lack: /proc is masked"},
			{"masked proc, as the container's user", `unshare -Urm sh -c 'mount -t tmpfs -o ro tmpfs /proc/acpi; exec "$PROBE"'`, false, "lack: /proc is masked"},
			{"read-only proc", `unshare -Urm sh -c 'mount -o remount,bind,ro /proc; exec "$PROBE"'`, false, "lack: /proc is not usable"},
			{"no proc", `unshare -Urm sh -c 'mount -t tmpfs tmpfs /proc; exec "$PROBE"'`, false, "lack: /proc is not usable"},
			{"no openat2", `"$PROBE" "no openat2"`, false, "lack: a needed system call is hidden"},
		} {
			if c.root && os.Geteuid() != 0 {
				continue
			}
			got := preflight(t, c.script)
			if !strings.Contains(got, c.want) || strings.Count(got, "lack: ") > 2 {
				t.Errorf("%s: %s", c.name, got)
			}
		}
	})
}

// In a chroot no user namespace can be made.
func TestPreflightInChroot(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		root := t.TempDir()
		script := `unshare -Urm sh -c 'cd "$ROOT" && mkdir usr proc dev probe lib lib64 bin tmp && mount --rbind /usr usr && mount --rbind /lib lib && mount --rbind /lib64 lib64 && mount --rbind /bin bin && mount --rbind /proc proc && mount --rbind /dev dev && touch probe/p && mount --bind "$PROBE" probe/p && TMPDIR=/tmp exec chroot . /probe/p'`
		t.Setenv("ROOT", root)
		got := preflight(t, script)
		if !strings.Contains(got, "lack: user namespaces are off") || !strings.Contains(got, "chroot") {
			t.Error(got)
		}
		os.RemoveAll(filepath.Join(root, "probe"))
	})
}
