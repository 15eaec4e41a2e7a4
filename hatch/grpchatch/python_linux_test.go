package grpchatch

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python is the interpreter of a virtual environment with gRPC, made once and
// kept in the user's cache directory, or wherever POSTERN_TEST_VENV says.
func python(t *testing.T) string {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf
	}
	venv := os.Getenv("POSTERN_TEST_VENV")
	if venv == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			missing("no place for a Python environment: %v", err)
		}
		venv = filepath.Join(cache, "postern-go", "venv")
	}
	if out, err := exec.Command("../../tests/venv.sh", venv).CombinedOutput(); err != nil {
		missing("no Python environment: tests/venv.sh %s: %v\n%s", venv, err, out)
	}
	return filepath.Join(venv, "bin", "python")
}

func run(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return out
}

func TestPythonClient(t *testing.T) {
	python := python(t)
	stubs := t.TempDir()
	run(t, exec.Command(python, "-m", "grpc_tools.protoc", "-I../../examples/greeter/greeterpb",
		"--python_out="+stubs, "--grpc_python_out="+stubs, "greeter.proto"))

	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	client := exec.CommandContext(t.Context(), python, "testdata/client.py")
	client.Env = append(os.Environ(), "PYTHONPATH="+stubs, "POSTERN_HATCH="+h.SocketPath(), "PYTHONDONTWRITEBYTECODE=1")
	var got any
	if err := json.Unmarshal(run(t, client), &got); err != nil {
		t.Fatal(err)
	}
	denied := func(method string) any {
		return []any{"PERMISSION_DENIED", method + " is not on the hatch allowlist"}
	}
	want := map[string]any{
		"unary":            "Hello Ada",
		"server streaming": []any{"Hello Ada", "Hello Ada", "Hello Ada"},
		"client streaming": "Hello Ada, Grace",
		"bidirectional":    []any{"Hello Ada", "Hello Grace"},
		"large":            float64(len("Hello ") + 3<<20),
		"denied": map[string]any{
			"unary":            denied("/other.Service/Method"),
			"server streaming": denied("/other.Service/Method"),
			"client streaming": denied("/other.Service/Method"),
			"bidirectional":    denied("/other.Service/Method"),
			"malformed":        denied("/malformed"),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the client saw (-want +got):\n%s", strings.TrimSpace(diff))
	}
}
