package seccompbpf

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// Programs people run must not notice the filter. Baseline denies nothing that Hardened does not,
// so the stricter one speaks for both.
func TestProgramsRunUnderTheFilter(t *testing.T) {
	f := HardenedFilter()
	for _, c := range []struct {
		name  string
		needs string
		argv  []string
	}{
		{"bash", "", []string{"bash", "everyday.sh"}},
		{"python", "", []string{"python3", "everyday.py"}},
		{"pandas", "", []string{filepath.Join(testutil.Venv(t), "bin", "python"), "frames.py"}},
		{"git", "git --version", []string{"bash", "git.sh"}},
		{"gcc", "gcc --version", []string{"bash", "gcc.sh"}},
		{"go", "go version", []string{"bash", "go.sh"}},
		{"node", "", []string{"node", "everyday.js"}},
		{"java", "javac -version", []string{"java", "Everyday.java"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" {
				if out, err := exec.Command("sh", "-c", c.needs).CombinedOutput(); err != nil {
					testutil.Missing(t, c.needs+": "+err.Error()+": "+string(out))
				}
			}
			cmd := under(t, f, 0, c.argv...)
			cmd.Dir = "testdata/programs"
			cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir(), "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "fine" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The other way round: what a guest may not do, tried with tools that people know. Each works
// without the filter.
func TestToolsAreRefused(t *testing.T) {
	f := HardenedFilter()
	for _, c := range []struct{ name, script string }{
		{"setuid", `touch f && chmod 4755 f`},
		{"setgid directory", `mkdir d && chmod g+s d`},
		{"namespace", `unshare true`},
		{"personality", `setarch -R true`},
		{"netlink", `python3 -c 'import socket; socket.socket(16, 3, 16)'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(cmd *exec.Cmd) ([]byte, error) {
				cmd.Dir = t.TempDir()
				return cmd.CombinedOutput()
			}
			if out, err := run(exec.Command("bash", "-ec", c.script)); err != nil {
				t.Fatalf("it fails without the filter too: %v\n%s", err, out)
			}
			out, err := run(under(t, f, 0, "bash", "-ec", c.script))
			if err == nil {
				t.Errorf("it works under the filter\n%s", out)
			}
		})
	}
}

func TestFilterIsInheritedAndCounted(t *testing.T) {
	f := HardenedFilter()
	out, err := under(t, f, 0, "bash", "-c", "bash -c 'cat /proc/self/status'").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t1"} {
		if !strings.Contains(string(out), line+"\n") {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
}
