//go:build linux

package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/populationgenomics/postern-go/workspace"
)

// Reading what a guest has left: a link to the host's files is refused, and says why.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "result.json"), []byte(`{"ok":true}`), 0o644)
	os.Symlink("/etc/shadow", filepath.Join(dir, "report.txt"))

	ws, err := workspace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.Close()

	data, err := ws.ReadFile("result.json")
	fmt.Printf("%s %v\n", data, err)
	_, err = ws.ReadFile("report.txt")
	fmt.Println(errors.Is(err, workspace.Symlink), err)
	// Output:
	// {"ok":true} <nil>
	// true workspace: open "report.txt": is, or leads through, a symbolic link; none is ever followed
}

// Carrying a workspace elsewhere: what is unsafe stays behind and is reported.
func ExampleWorkspace_PackTar() {
	ctx := context.Background()
	from, _ := os.MkdirTemp("", "")
	to, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(from)
	defer os.RemoveAll(to)
	os.WriteFile(filepath.Join(from, "a.txt"), []byte("hello"), 0o644)
	os.Symlink("a.txt", filepath.Join(from, "link"))

	ws, err := workspace.Open(from)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.Close()
	var archive bytes.Buffer
	report, err := ws.PackTar(ctx, &archive, workspace.PackOptions{Compression: workspace.Zstd})
	fmt.Println(report.Files, report.Skipped, err)

	other, err := workspace.Open(to)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	report, err = other.RestoreTar(ctx, &archive, workspace.RestoreOptions{
		Limits: workspace.Limits{MaxEntries: 20_000, MaxBytes: 512 << 20},
	})
	fmt.Println(report.Files, report.OK(), err)
	// Output:
	// 1 ["link": symlink] <nil>
	// 1 true <nil>
}
