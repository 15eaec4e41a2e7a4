package stage

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// goBuild runs the go command, which writes a binary, and returns its path.
func goBuild(t *testing.T, env []string, command string, args ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	cmd := exec.Command(needTool(t, "go"), append([]string{command, "-o", binary}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %v: %v\n%s", env, cmd, err, out)
	}
	return binary
}

// TestBuildModes launches from binaries in which code lies elsewhere, or has
// been instrumented.
func TestBuildModes(t *testing.T) {
	if _, ok := Host(); !ok {
		t.Skip("no stage for this architecture")
	}
	for _, test := range []struct {
		name  string
		flags []string
		cgo   string
	}{
		{"plain", nil, "0"},
		{"race", []string{"-race"}, "1"},
		{"cover", []string{"-cover", "-coverpkg=./..."}, "0"},
		{"pie", []string{"-buildmode=pie"}, "0"},
		{"stripped", []string{"-trimpath", "-ldflags=-s -w"}, "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.cgo == "1" {
				needTool(t, "gcc")
			}
			binary := goBuild(t, []string{"CGO_ENABLED=" + test.cgo}, "build", append(test.flags, "./testdata/launch")...)
			f, err := elf.Open(binary)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if test.name == "pie" && f.Type != elf.ET_DYN {
				t.Errorf("the binary is of type %v, not position independent", f.Type)
			}
			cmd := exec.Command(binary)
			cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello\n" {
				t.Errorf("launch: %v, output %q", err, out)
			}
		})
	}
}
