package postern

import (
	"context"
	"os"
	"testing"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

func TestCheckpoint(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		store, err := checkpoint.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		profiles := []Profile{{}}
		if os.Geteuid() == 0 {
			profiles = append(profiles, Profile{HostUID: new(uint32(1234))})
		}
		ctx := context.Background()
		for _, p := range profiles {
			first := sandbox(t, p)
			outputOf(t, first, "mkdir -p keep drop; echo state > keep/file; chmod 600 keep/file; echo x > drop/file; ln -s / keep/trap")
			report, err := first.Checkpoint(ctx, store, "key", checkpoint.SaveOptions{Globs: []string{"keep"}})
			if err != nil || report.Files != 1 || len(report.Skipped) != 1 {
				t.Errorf("Checkpoint: %+v, %v", report, err)
			}
			second := sandbox(t, p)
			if _, err := second.Restore(ctx, store, "key", checkpoint.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := outputOf(t, second, "cat keep/file; echo more >> keep/file; ls -A . keep"); got != "state\n.:\nkeep\n\nkeep:\nfile" {
				t.Errorf("restored: %q", got)
			}
		}
		if _, err := sandbox(t, Profile{WorkspaceSize: 1 << 20}).Checkpoint(ctx, store, "key", checkpoint.SaveOptions{}); err == nil {
			t.Error("a workspace in memory was saved")
		}
	})
}
