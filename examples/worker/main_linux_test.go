package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
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

// Promises 69, 290.
func TestWorker(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 1} {
		cmd := example(script)
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d", script, got)
		}
	}
	out, err := example().CombinedOutput()
	if err != nil || string(out) != "working in /workspace\n" {
		t.Errorf("%v %s", err, out)
	}
}

func TestWorkerRefusesToServe(t *testing.T) {
	cmd := example("-rootfs", t.TempDir(), "echo served")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 || strings.Contains(string(out), "served") || !strings.Contains(string(out), "refusing to serve") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestWorkerPassesTheStopOn(t *testing.T) {
	cmd := example("trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 1000 & wait; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("it says %q, %v", lines.Text(), lines.Err())
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if !lines.Scan() || lines.Text() != "cleaned" {
		t.Errorf("the guest says %q", lines.Text())
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
}
