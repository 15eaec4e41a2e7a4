//go:build linux

package nsexec_test

import (
	"errors"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// Somebody may kill the stage when the init exists and the host does not know
// of it yet. Nobody then waits for the other for ever.
func TestStageKilledUnannounced(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for name, net := range map[string]nsexec.Namespace{"own network": nsexec.New, "shared network": nsexec.Share} {
			s := hardened(t, "/bin/echo", "ran")
			s.Namespaces.Net = net
			hung := time.AfterFunc(time.Minute, func() { panic(name + ": the launch hangs") })
			swapped := 0
			p, err := nsexec.StartAltered(s, func(p *stage.Program) {
				for i, op := range p.Ops {
					if op.Step.Do == "announce the init" {
						p.Ops[i] = stage.Op{Kind: stage.Sys, Call: stage.ExitGroup, Args: []stage.Arg{stage.Imm(0)}, Step: op.Step}
						swapped++
					}
				}
			})
			hung.Stop()
			if p != nil || !errors.Is(err, nsexec.ErrKilled) || swapped != 1 {
				t.Errorf("%s: %v, %v, %d operations swapped", name, p, err, swapped)
			}
			// What nobody knew of, nobody has waited for.
			for err = error(unix.EINTR); err == unix.EINTR; {
				_, err = unix.Wait4(-1, nil, 0, nil)
			}
		}
	})
}
