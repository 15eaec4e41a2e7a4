//go:build linux

package mounts_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
)

// An optional bind whose source is missing is as good as none, whatever comes
// before and after it.
func TestMissingOptionalIsNone(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for seed := range uint64(60) {
			random := rand.New(rand.NewPCG(seed, 0))
			with := optionalTree(t)
			without := optionalTree(t)
			var all, present []mounts.Op
			for i := range 4 + random.IntN(6) {
				dest := []string{"/w", "/w/a", "/w/a/b", "/w/new", "/w/new/er", "/w/link", "/k", "/k/in"}[random.IntN(8)] + fmt.Sprintf("/%d", i)
				op := func(top string) mounts.Op {
					switch random.IntN(3) {
					case 0:
						return mounts.Dir{Dest: dest}
					case 1:
						return mounts.File{Dest: dest, Data: dest}
					}
					return mounts.Bind{Source: top + "/dir", Dest: dest, Optional: random.IntN(2) == 0, FollowDest: random.IntN(4) == 0}
				}
				if random.IntN(2) == 0 {
					missing := mounts.Bind{Source: with + "/missing", Dest: dest, Optional: true, FollowDest: random.IntN(4) == 0}
					all = append(all, missing)
					continue
				}
				o := op(with)
				all = append(all, o)
				if b, ok := o.(mounts.Bind); ok {
					b.Source = without + "/dir"
					o = b
				}
				present = append(present, o)
			}
			got, want := optionalRun(t, with, all), optionalRun(t, without, present)
			if got != want {
				t.Errorf("seed %d: %+v\nwith those that are missing:\n%s\nwithout:\n%s", seed, all, got, want)
			}
		}
	})
}

func optionalTree(t *testing.T) string {
	return tree(t, "w/a/b/", "w/link -> a", "dir/f", "k/")
}

// optionalRun returns what a guest and its host see with these mounts.
func optionalRun(t *testing.T, top string, ops []mounts.Op) string {
	t.Helper()
	s := guest.Shell("find /w /k -printf '%y %m %p\\n' | sort; echo; read x", append([]mounts.Op{
		mounts.Bind{Source: top + "/w", Dest: "/w", Mode: mounts.ReadWrite}, mounts.Tmpfs{Dest: "/k"},
	}, ops...)...)
	inR, in := testutil.Pipe(t)
	out, outW := testutil.Pipe(t)
	s.Stdin, s.Stdout = inR, outW
	p, err := nsexec.Start(s)
	if err != nil {
		return err.Error()
	}
	outW.Close()
	var seen []byte
	for !slices.Equal(seen[max(0, len(seen)-2):], []byte("\n\n")) {
		var b [4096]byte
		n, err := out.Read(b[:])
		if err != nil {
			t.Fatalf("%s%v", seen, err)
		}
		seen = append(seen, b[:n]...)
	}
	held := 0
	if os.Getuid() == 0 { // nobody else may look into an init
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
		if err != nil || len(fds) == 0 {
			t.Fatalf("the init's descriptors: %v, %v", fds, err)
		}
		held = len(fds)
	}
	in.Close()
	io.Copy(io.Discard, out)
	<-p.Done()
	return fmt.Sprintf("%son the host %q, %d descriptors", seen, files(t, top+"/w"), held)
}
