//go:build linux

package nsexec_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// Verify goes as far as Start and no further. The control is Start.
func TestVerify(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			dir := t.TempDir()
			s := hardened(t, "sh", "-c", "echo > /m/ran")
			s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{Source: dir, Dest: "/m", Mode: mounts.ReadWrite})
			if err := nsexec.Verify(context.Background(), s); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("the program was run")
			}
			if r := guest.Run(t, s); r.ExitCode != 0 {
				t.Fatalf("%+v", r)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err != nil {
				t.Errorf("the control: %v", err)
			}
		})
	})
}

func TestVerifyWithTerminal(t *testing.T) {
	testutil.NoLeak(t, func() {
		s := hardened(t, "true")
		s.Terminal = true
		if err := nsexec.Verify(context.Background(), s); err != nil {
			t.Error(err)
		}
	})
}

// The error is the launch's, and that of a program which is kept from being
// looked for.
func TestVerifyFails(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			s := hardened(t, "true")
			s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{Source: "/no/such", Dest: "/m"})
			err := nsexec.Verify(context.Background(), s)
			if se, ok := errors.AsType[*nsexec.StartError](err); !ok || se.On != "/no/such" || !errors.Is(err, unix.ENOENT) {
				t.Errorf("no source: %v", err)
			}
			s = hardened(t, "true")
			s.Mounts.Ops = append(s.Mounts.Ops, mounts.Symlink{Target: "nothing", Dest: "/run/postern/nothing"})
			if err := nsexec.Verify(context.Background(), s); !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), "execute") {
				t.Errorf("no way to look: %v", err)
			}
			if err := nsexec.Verify(context.Background(), &nsexec.Spec{Dir: "relative", Init: true}); err == nil {
				t.Error("a bad spec is fine")
			}
		})
	})
}

// A context that ends says nothing about the machine.
func TestVerifyContext(t *testing.T) {
	testutil.NoLeak(t, func() {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		if err := nsexec.Verify(ctx, hardened(t, "true")); err != why {
			t.Errorf("before: %v", err)
		}
		// It ends when the guest exists.
		ctx, cancel = context.WithCancelCause(context.Background())
		s := hardened(t, "true")
		s.Launcher = &nsexec.Launcher{Announce: func(int) error { cancel(why); return nil }}
		if err := nsexec.Verify(ctx, s); err != nil && err != why {
			t.Errorf("during: %v", err)
		}
	})
}
