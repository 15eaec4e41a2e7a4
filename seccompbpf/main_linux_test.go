package seccompbpf

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// The test program runs itself again, with this variable set, for whatever must not happen in
// the process of the tests: a filter cannot be taken off again.
const childVar = "SECCOMPBPF_TEST_CHILD"

func TestMain(m *testing.M) {
	var err error
	switch child := os.Getenv(childVar); child {
	case "":
		os.Exit(m.Run())
	case "exec":
		err = childExec(os.Args[1], os.Args[2], os.Args[3:])
	case "check":
		err = childCheck()
	case "run":
		err = childRun()
	default:
		err = fmt.Errorf("unknown child %q", child)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test child:", err)
		os.Exit(99)
	}
}

func child(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(must(os.Executable()), args...)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	return cmd
}

// under returns a command that runs argv with the filter in force.
func under(t *testing.T, f Filter, flags int, argv ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "filter.bpf")
	if err := os.WriteFile(file, f.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	path := argv[0]
	if !filepath.IsAbs(path) {
		path = testutil.RequireTool(t, path)
	}
	return child("exec", append([]string{file, strconv.Itoa(flags), path}, argv[1:]...)...)
}

// childExec takes the filter as a launcher gets one from a user: as bytes.
func childExec(file, flags string, argv []string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := Parse(raw)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(flags)
	if err != nil {
		return err
	}
	os.Unsetenv(childVar)
	runtime.LockOSThread()
	if _, err := install(f, uintptr(n)); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

// install puts the filter in force for the calling thread.
func install(f Filter, flags uintptr) (uintptr, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	raw := f.Bytes()
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// exchange gives a child its input and takes its answer.
func exchange(t *testing.T, cmd *exec.Cmd, in, out any) {
	t.Helper()
	var question bytes.Buffer
	if err := gob.NewEncoder(&question).Encode(in); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = &question
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	if err := gob.NewDecoder(bytes.NewReader(answer)).Decode(out); err != nil {
		t.Fatal(err)
	}
}
