package main

import (
	"os"
	"os/exec"
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

func TestQuickstart(t *testing.T) {
	out, err := example().CombinedOutput()
	if want := "hello from /workspace as user 65534\nno network: Network is unreachable\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
