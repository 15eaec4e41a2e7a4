//go:build linux

package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/workspace"
)

func Example() {
	ctx := context.Background()
	top, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(top)
	open := func(name string) *workspace.Workspace {
		dir := filepath.Join(top, name)
		os.MkdirAll(filepath.Join(dir, "out"), 0o755)
		ws, err := workspace.Open(dir)
		if err != nil {
			log.Fatal(err)
		}
		return ws
	}
	store, err := checkpoint.OpenDir(filepath.Join(top, "store"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	ws := open("first")
	defer ws.Close()
	ws.WriteFile("out/model", []byte("weights"))
	ws.WriteFile("scratch", []byte("not kept"))
	report, err := checkpoint.Save(ctx, ws, store, "run/42", checkpoint.SaveOptions{Globs: []string{"out/**"}})
	fmt.Println(report.Files, err)

	other := open("second")
	defer other.Close()
	_, err = checkpoint.Load(ctx, other, store, "run/42", checkpoint.LoadOptions{})
	data, _ := other.ReadFile("out/model")
	fmt.Printf("%s %v %v\n", data, other.Exists("scratch"), err)
	// Output:
	// 1 <nil>
	// weights false <nil>
}
