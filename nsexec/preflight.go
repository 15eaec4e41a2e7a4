//go:build linux

package nsexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// What a machine can lack. A [*PreflightError] matches one of them with
// errors.Is.
var (
	ErrUnsupportedArch  = stage.ErrUnsupportedArch
	ErrKernelTooOld     = errors.New("the kernel is too old")
	ErrSyscallHidden    = errors.New("a needed system call is hidden")
	ErrNoProc           = errors.New("/proc is not usable")
	ErrProcMasked       = errors.New("/proc is masked")
	ErrNoUserns         = errors.New("user namespaces are off")
	ErrUsernsRestricted = errors.New("user namespaces are restricted")
	ErrNoSeccomp        = errors.New("seccomp filters are not available")
	ErrMemfdNoexec      = errors.New("anonymous files cannot be executed")
	ErrLaunch           = errors.New("a trial launch failed")
)

// A PreflightError is one thing a machine lacks for launching guests.
type PreflightError struct {
	Lack   error  // one of the errors above
	Reason string // what was seen
	Remedy string // what to do about it
	Err    error  // the cause, where there is one
}

func (e *PreflightError) Error() string {
	return fmt.Sprintf("%v: %s; %s", e.Lack, e.Reason, e.Remedy)
}

// Unwrap returns the lack and the cause.
func (e *PreflightError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Lack}
	}
	return []error{e.Lack, e.Err}
}

// Preflight finds out whether this process could launch a guest with all
// namespaces and a file system of its own. It returns everything that is
// lacking, joined, each a [*PreflightError] that says what to do. If nothing
// looks wrong it makes a trial launch, which runs no program, and only success
// of that counts. It takes a few milliseconds.
func Preflight() error {
	if errs := lacks(machineFacts()); len(errs) > 0 {
		return errors.Join(errs...)
	}
	return trial()
}

// facts is what the checks ask about a machine, so that tests can describe one
// that is not at hand.
type facts struct {
	arch    bool
	release string
	euid    int
	missing []string // system calls that answer ENOSYS
	seccomp bool
	file    func(path string) (string, bool)
	procFS  bool
}

func machineFacts() facts {
	f := facts{euid: os.Geteuid()}
	_, f.arch = stage.Host()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.release = unix.ByteSliceToString(u.Release[:])
	}
	// With these arguments none of the calls does anything.
	const badFD = ^uintptr(0)
	for _, c := range []struct {
		name string
		nr   uintptr
	}{{"openat2", unix.SYS_OPENAT2}, {"open_tree", unix.SYS_OPEN_TREE}, {"move_mount", unix.SYS_MOVE_MOUNT},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR}, {"pidfd_open", unix.SYS_PIDFD_OPEN}, {"pidfd_send_signal", unix.SYS_PIDFD_SEND_SIGNAL}} {
		if _, _, e := unix.RawSyscall6(c.nr, badFD, 0, badFD, 0, 0, 0); e == unix.ENOSYS {
			f.missing = append(f.missing, c.name)
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_CLOSE_RANGE, 1, 0, 0); e == unix.ENOSYS {
		f.missing = append(f.missing, "close_range")
	}
	_, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	f.seccomp = err == nil
	var st unix.Statfs_t
	f.procFS = unix.Statfs("/proc/self", &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
	f.file = func(path string) (string, bool) {
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)), err == nil
	}
	return f
}

const (
	floorMajor, floorMinor = 5, 12 // mount_setattr
)

func (f facts) tooOld() bool {
	var major, minor int
	if n, _ := fmt.Sscanf(f.release, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	return major < floorMajor || major == floorMajor && minor < floorMinor
}

// lacks returns what can be told without launching anything.
func lacks(f facts) []error {
	var errs []error
	add := func(lack error, reason, remedy string) {
		errs = append(errs, &PreflightError{Lack: lack, Reason: reason, Remedy: remedy})
	}
	is := func(path, value string) bool {
		v, ok := f.file(path)
		return ok && v == value
	}
	if !f.arch {
		add(ErrUnsupportedArch, "this is another one", "run on amd64 or arm64")
	}
	switch {
	case len(f.missing) == 0:
	case f.tooOld():
		add(ErrKernelTooOld, fmt.Sprintf("Linux %s lacks %s", f.release, strings.Join(f.missing, ", ")), fmt.Sprintf("use Linux %d.%d or later", floorMajor, floorMinor))
	default:
		add(ErrSyscallHidden, fmt.Sprintf("%s answer 'function not implemented' on Linux %s", strings.Join(f.missing, ", "), f.release),
			"a seccomp filter around this process hides them: under systemd unset RestrictSUIDSGID= (it hides openat2), in a container use a newer runtime profile; gVisor has no such calls")
	}
	if !f.procFS {
		add(ErrNoProc, "no proc file system at /proc", "mount one")
	}
	if !f.seccomp {
		add(ErrNoSeccomp, "the kernel does not know PR_GET_SECCOMP", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	if is("/proc/sys/vm/memfd_noexec", "2") {
		add(ErrMemfdNoexec, "the sysctl vm.memfd_noexec is 2", "set vm.memfd_noexec to 0 or 1")
	}
	if n, ok := f.file("/proc/sys/user/max_user_namespaces"); ok {
		if v, err := strconv.Atoi(n); err == nil && v == 0 {
			add(ErrNoUserns, "the sysctl user.max_user_namespaces is 0", "set user.max_user_namespaces to a positive number")
		}
	} else if f.procFS {
		if _, ok := f.file("/proc/self/uid_map"); !ok {
			add(ErrNoUserns, "there is no /proc/self/uid_map", "use a kernel with CONFIG_USER_NS")
		}
	}
	if f.euid != 0 && is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
		add(ErrNoUserns, "the sysctl kernel.unprivileged_userns_clone is 0", "set kernel.unprivileged_userns_clone to 1")
	}
	if f.euid != 0 && is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
		if label, ok := f.file("/proc/self/attr/apparmor/current"); !ok || label == "unconfined" {
			errs = append(errs, restricted(nil))
		}
	}
	return errs
}

// restricted explains the AppArmor restriction of Ubuntu 23.10 and later.
func restricted(cause error) error {
	exe, err := os.Executable()
	if err != nil {
		exe = "/path/of/this/program"
	}
	return &PreflightError{
		Lack:   ErrUsernsRestricted,
		Reason: "the sysctl kernel.apparmor_restrict_unprivileged_userns lets only programs with an AppArmor profile use them",
		Remedy: fmt.Sprintf("install a profile for this program, as /etc/apparmor.d/postern containing \"abi <abi/4.0>, include <tunables/global> profile postern %s flags=(unconfined) { userns, }\", "+
			"and reload AppArmor; or set kernel.apparmor_restrict_unprivileged_userns to 0", exe),
		Err: cause,
	}
}

// trial makes the least launch that takes all a hardened one does.
func trial() error {
	id := uint32(65534)
	err := startNothing(context.Background(), &Spec{
		Dir: "/", Namespaces: AllNew(), UID: &id, GID: &id, Init: true, NewSession: true,
		Mounts: &mounts.Tree{Ops: []mounts.Op{mounts.Proc{Dest: "/proc"}, mounts.Dev{Dest: "/dev"}}},
	})
	if err != nil {
		return explain(err)
	}
	return nil
}

// explain turns a failed trial launch into what the machine lacks.
func explain(err error) error {
	var se *StartError
	if !errors.As(err, &se) {
		return &PreflightError{Lack: ErrLaunch, Reason: err.Error(), Remedy: "see the reason", Err: err}
	}
	lack := ErrLaunch
	switch {
	case se.Step == DoUnshare && (se.Errno == unix.EPERM || se.Errno == unix.ENOSPC || se.Errno == unix.EINVAL):
		lack = ErrNoUserns
	case (se.Step == DoMap || se.Step == DoSetgroups) && se.Errno == unix.EROFS:
		lack = ErrNoProc
	case se.Step == DoMap || se.Step == DoSetgroups || se.Step == DoLoopback || se.Step == mounts.DoSlave:
		lack = ErrUsernsRestricted
	case se.Step == mounts.DoProc && se.Errno == unix.EPERM:
		lack = ErrProcMasked
	case se.Errno == unix.ENOSYS:
		lack = ErrSyscallHidden
	}
	remedy := se.Hint
	if remedy == "" {
		remedy = "run the program under strace -f to see more"
	}
	return &PreflightError{Lack: lack, Reason: fmt.Sprintf("%s: %v", stage.Step{Do: se.Step, On: se.On}, se.Errno), Remedy: remedy, Err: se}
}
