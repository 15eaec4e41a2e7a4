//go:build linux

package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again in these roles.
const helperEnv = "WORKSPACE_TEST_ROLE"

// onceEnv has the tests run once, its value saying whether without openat2.
const onceEnv = "WORKSPACE_TEST_NO_OPENAT2"

func helper(role string) int {
	switch role {
	case "swap":
		return swapForever(os.Args[1])
	case "lease":
		return holdLease(os.Args[1])
	}
	return 2
}

// startHelper runs a role until the test ends; the helper goes when its standard input closes.
func startHelper(t testing.TB, role string, args ...string) io.ReadCloser {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+role)
	cmd.Stderr = os.Stderr
	// Root in a user namespace of its own: enough to chroot, no more than its user to the host.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
		needed(t, "user namespaces: "+err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	return out
}

// holdLease keeps a write lease on a file, so that a blocking open waits for it.
func holdLease(path string) int {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 3
	}
	// The kernel tells of a waiting opener by SIGIO, which would end the process.
	sigignIO()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return 4
	}
	os.Stdout.WriteString("held\n")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// asNobody runs the named test again as an unprivileged user, in a directory of its own.
// It returns true in the process that is to run the body.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	// The binary and the directory must be within the other user's reach.
	dir, err := os.MkdirTemp("", "workspace-nobody-*")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	scratch := filepath.Join(dir, "scratch")
	must(t, os.Mkdir(scratch, 0o700))
	must(t, os.Chown(scratch, 65534, 65534))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	bin := filepath.Join(dir, "test")
	must(t, os.WriteFile(bin, self, 0o755))
	cmd := exec.Command(bin, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = scratch
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch, onceEnv+"="+strconv.FormatBool(noOpenat2))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as an unprivileged user: %v\n%s", err, out)
	}
	t.Logf("as an unprivileged user:\n%s", out)
	return false
}
