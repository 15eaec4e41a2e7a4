package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// emitImages, when set, makes the test binary write the images of all cases
// into the directory it names instead of testing anything. The test binary of
// another architecture is run with it, so that its machine code and its system
// call numbers go through the emulator.
const emitImages = "POSTERN_STAGE_EMIT_IMAGES"

func TestMain(m *testing.M) {
	if dir := os.Getenv(emitImages); dir != "" {
		if err := emit(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if leaked := openImages(); len(leaked) > 0 {
		fmt.Fprintln(os.Stderr, "launch images left open:", leaked)
		code = 1
	}
	os.Exit(code)
}

func emit(dir string) error {
	for _, c := range cases() {
		if c.notEmulated != "" {
			continue
		}
		_, image, err := c.link()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.name), image, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// openImages lists the memfds this process has open.
func openImages() (found []string) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "/memfd:") {
			found = append(found, to)
		}
	}
	return found
}

// needTool returns the path of a program that a test cannot do without.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("this test needs %s: %v", name, err)
	}
	t.Skipf("this test needs %s: %v", name, err)
	return ""
}
