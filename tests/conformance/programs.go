//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const module = "github.com/populationgenomics/postern-go/"

// goBuild builds a static program of this module.
func goBuild(target, pkg string, flags ...string) error {
	args := append(append([]string{"build", "-o", target}, flags...), module+pkg)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func buildProbe(target string) error {
	return goBuild(target, "tests/conformance/probe", "-ldflags", "-s -w -E main.entry")
}

// newBwrap returns where fetch-bwrap.sh puts the newest reference, or what POSTERN_BWRAP_NEW says. It need not
// exist.
func newBwrap() string {
	if path := os.Getenv("POSTERN_BWRAP_NEW"); path != "" {
		return path
	}
	cache := "/var/cache/postern"
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		cache = filepath.Join(dir, "postern")
	}
	return filepath.Join(cache, "bwrap-0.13.1", "bwrap")
}
