//go:build linux

package nsexec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

func TestConcurrentLaunches(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					if i%10 == 9 {
						_, err := guest.Try(guest.Shell("true", mounts.Bind{Source: "/missing", Dest: "/mnt"}))
						if !errors.Is(err, unix.ENOENT) {
							t.Errorf("launch %d: %v", i, err)
						}
						return
					}
					s := guest.Shell(fmt.Sprintf("echo %d; exit %d", i, i))
					s.Init = i%3 != 0
					r, err := guest.Try(s)
					if err != nil || r.ExitCode != i || r.Out != fmt.Sprintln(i) {
						t.Errorf("launch %d: %+v, %v", i, r, err)
					}
				})
			}
			all.Wait()
		})
	})
}

// One spec may be launched by many at once.
func TestSpecIsAValue(t *testing.T) {
	s := guest.Shell("exit 3")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			p, err := nsexec.Start(s)
			if err != nil {
				t.Error(err)
				return
			}
			if st, _ := p.Wait(context.Background()); st.ExitCode != 3 {
				t.Errorf("%+v", st)
			}
		})
	}
	all.Wait()
}

// Signals race with the end, and many wait for it.
func TestSignalsRaceWithTheEnd(t *testing.T) {
	testutil.NoLeak(t, func() {
		for range 50 {
			p, err := nsexec.Start(guest.Spec([]string{"true"}))
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			statuses := make([]nsexec.Status, 8)
			for i := range statuses {
				all.Go(func() {
					var err error
					if statuses[i], err = p.Wait(context.Background()); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					spin(rand.IntN(500))
					for range 20 {
						if err := p.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
							t.Error(err)
						}
						if f, err := p.Dup(); err == nil {
							f.Close()
						} else if !errors.Is(err, os.ErrProcessDone) {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			for _, st := range statuses {
				if st != statuses[0] {
					t.Errorf("%+v and %+v", st, statuses[0])
				}
				if st.ExitCode != 0 && st.Signal != unix.SIGTERM {
					t.Errorf("%+v", st)
				}
			}
		}
	})
}
