package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// heavy are packages whose initialization takes a good part of the time of a
// launch, or which make the program depend on the C library where there is a C
// compiler. A name ending in a slash stands for all below it as well.
var heavy = []string{
	"net", "os/user", "runtime/cgo", "archive/", "compress/", "crypto/", "encoding/json", "log/", "math/big", "math/rand/",
	"github.com/klauspost/", "github.com/populationgenomics/postern-go",
	"github.com/populationgenomics/postern-go/hatch/", "github.com/populationgenomics/postern-go/workspace", "github.com/populationgenomics/postern-go/checkpoint/",
}

// linked returns the heavy packages that a package of this module links.
func linked(t testing.TB, pkg string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(dep string) bool {
		return !slices.ContainsFunc(heavy, func(h string) bool {
			return dep == strings.TrimSuffix(h, "/") || strings.HasSuffix(h, "/") && strings.HasPrefix(dep, h)
		})
	})
}

// The launcher links nothing that makes it slow to start. The control is the
// library.
func TestLinksNothingHeavy(t *testing.T) {
	for _, dep := range linked(t, ".") {
		t.Errorf("postern-launch links %s; go list -deps -json . says by way of what", dep)
	}
	library := linked(t, "../..")
	for _, dep := range []string{"net", "os/user", "runtime/cgo", "log/slog", "github.com/populationgenomics/postern-go/hatch"} {
		if !slices.Contains(library, dep) {
			t.Errorf("the control: %q lacks %s", library, dep)
		}
	}
}

// A plain go build makes a program that needs no C library, wherever it is
// built.
func TestStatic(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "postern-launch")
	cmd := exec.Command("go", "build", "-o", exe, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !static(t, exe) {
		t.Error("it has a dynamic loader")
	}
	if static(t, "/bin/sh") {
		t.Error("the control: so has /bin/sh")
	}
}

func static(t testing.TB, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
