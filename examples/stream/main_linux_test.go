package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const runMain = "POSTERN_EXAMPLE_MAIN"

// The test program is the example when it is told to be.
func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func example(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	return cmd
}

func TestStream(t *testing.T) {
	out, err := example().CombinedOutput()
	got := string(out)
	if err != nil || !strings.HasPrefix(got, "stdout: line 1\n") || !strings.HasSuffix(got, "cleaning up\nexit status 3\n") {
		t.Errorf("%v\n%s", err, got)
	}
}
