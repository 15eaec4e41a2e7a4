package testutil

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
)

// Nobody is the unprivileged user and group that tests run as.
const Nobody = 65534

const userEnv = "POSTERN_TEST_USER"

// EachUser runs a test as the users whose launches differ: as root and, in a
// new process, as an unprivileged one. Not started by root it runs the test
// once, as who it is. Call it first thing in a top-level test.
func EachUser(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		f(t)
		return
	}
	t.Run("root", f)
	t.Run("nobody", func(t *testing.T) {
		name := regexp.MustCompile(`^[^/]+`).FindString(t.Name())
		cmd := SelfAsNobody(t, "-test.run=^"+name+"$", "-test.v", "-test.count=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(`(?m)^--- PASS: `+name+` `).Match(out) {
			t.Errorf("as user %d: %v\n%s", Nobody, err, out)
		}
	})
}

// SelfAsNobody returns a command that runs this test program as an
// unprivileged user, in a directory of its own.
func SelfAsNobody(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := reachable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir = NobodyDir(t)
	cmd.Env = append(os.Environ(), userEnv+"=nobody", "TMPDIR="+cmd.Dir, "HOME="+cmd.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
	return cmd
}

// NobodyDir returns a new directory that Nobody owns and can reach. It is
// removed after the test.
func NobodyDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, Nobody, Nobody); err != nil {
		t.Fatal(err)
	}
	return dir
}

var selfDir string

// reachable copies this program to where every user can execute it: go test
// builds it in a directory of root's.
var reachable = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "postern-test-")
	if err != nil {
		return "", err
	}
	selfDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer exe.Close()
	path := filepath.Join(dir, "self.test")
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(dst, exe)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return path, err
})
