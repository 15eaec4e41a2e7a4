package stage

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProgramsOnARM64 runs the programs of TestPrograms, linked by a test
// binary for arm64, and holds them to the same outcomes.
func TestProgramsOnARM64(t *testing.T) {
	qemu := needTool(t, "qemu-aarch64-static")
	dir := t.TempDir()
	binary := goBuild(t, []string{"GOARCH=arm64", "CGO_ENABLED=0"}, "test", "-c", ".")
	emit := exec.Command(qemu, binary)
	emit.Env = append(os.Environ(), emitImages+"="+dir)
	if out, err := emit.CombinedOutput(); err != nil {
		t.Fatalf("link the programs for arm64: %v\n%s", err, out)
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			image, err := os.ReadFile(path)
			if c.notEmulated != "" {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the image was not to be emitted: %v", err)
				}
				t.Skip(c.notEmulated)
			}
			if err != nil {
				t.Fatal(err)
			}
			f, err := elf.NewFile(bytes.NewReader(image))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != elf.EM_AARCH64 {
				t.Fatalf("image for %v", f.Machine)
			}
			p, _, err := c.link() // only its steps are used
			if err != nil {
				t.Fatal(err)
			}
			cmd := &exec.Cmd{Path: qemu, Args: []string{qemu, path}, Dir: t.TempDir()}
			c.check(t, ARM64, run(t, cmd, p, image, c.stdin))
		})
	}
}

// TestNoStageForThisArchitecture runs a launch in a binary for an architecture
// that has none, on a kernel which runs it all the same.
func TestNoStageForThisArchitecture(t *testing.T) {
	binary := goBuild(t, []string{"GOARCH=386", "CGO_ENABLED=0"}, "build", "./testdata/launch")
	out, err := exec.Command(binary).CombinedOutput()
	if got, want := string(out), ErrUnsupportedArch.Error()+"\n"; got != want || err == nil {
		t.Errorf("launch on 386: %v, output %q, want failure and %q", err, got, want)
	}
}
