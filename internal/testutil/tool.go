package testutil

import (
	"os"
	"os/exec"
	"testing"
)

// RequireTool returns the path of a program the test needs. Without it the
// test fails in CI and is skipped elsewhere.
func RequireTool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "the program "+name+" is not installed (tests/install-tools.sh does it)")
	}
	return path
}

// Missing ends a test that lacks something of the machine: it fails in CI,
// where everything can be installed, and is skipped elsewhere.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
