package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCallNumbers compares the table with the one golang.org/x/sys has for
// each architecture, whichever this test runs on.
func TestCallNumbers(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	constant := regexp.MustCompile(`(?m)^\s*SYS_([A-Z0-9_]+)\s*=\s*(\d+)`)
	for arch := range arches {
		text, err := os.ReadFile(filepath.Join(dir, "unix", fmt.Sprintf("zsysnum_linux_%s.go", arch)))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			want[strings.ToLower(m[1])] = m[2]
		}
		if len(want) < 300 {
			t.Fatalf("found only %d system calls of %s", len(want), arch)
		}
		for c := range calls {
			if got := strconv.Itoa(int(c.number(arch))); got != want[c.String()] {
				t.Errorf("%s: %q has number %s, want %q", arch, c, got, want[c.String()])
			}
		}
	}
}

func TestCallNamesDiffer(t *testing.T) {
	seen := map[string]Call{}
	for c := range calls {
		if other, dup := seen[c.String()]; dup || c.String() == "" {
			t.Errorf("calls %d and %d are both named %q", c, other, c)
		}
		seen[c.String()] = c
	}
}
