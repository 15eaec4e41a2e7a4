package profile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	os.Exit(testutil.Main(m))
}

// Promises 136 to 139: HostUID is root's to choose.
func TestHostUser(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		one, two := uint32(1), uint32(2)
		for _, tt := range []struct {
			profile Profile
			want    *nsexec.HostUser
		}{
			{Profile{}, nil},
			{Profile{HostUID: &one}, &nsexec.HostUser{UID: 1, GID: new(uint32(nobody))}},
			{Profile{HostUID: &one, GuestGID: NumericID(77)}, &nsexec.HostUser{UID: 1, GID: new(uint32(77))}},
			{Profile{HostUID: &one, GuestGID: CallerID}, &nsexec.HostUser{UID: 1}},
			{Profile{HostUID: &one, HostGID: &two}, &nsexec.HostUser{UID: 1, GID: &two}},
		} {
			if os.Geteuid() != 0 {
				tt.want = nil
			}
			if d := cmp.Diff(tt.want, tt.profile.HostUser()); d != "" {
				t.Error(d)
			}
		}
	})
}

// Promises 172, 173.
func TestShareWorkspace(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for id, want := range map[GuestID]fs.FileMode{Nobody: fs.ModeSticky | 0o777, NumericID(7): fs.ModeSticky | 0o777, NumericID(0): 0o700, CallerID: 0o700} {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := (Profile{GuestUID: id}).ShareWorkspace(dir); err != nil {
					t.Error(err)
				}
			}
			if st, err := os.Stat(dir); err != nil || st.Mode()&^fs.ModeDir != want {
				t.Errorf("for %v it has %v, want %v, %v", id, st.Mode(), want, err)
			}
		}
		if err := (Profile{}).ShareWorkspace(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		// A directory that is shared already needs no right to change it.
		if err := (Profile{}).ShareWorkspace("/tmp"); err != nil {
			t.Error(err)
		}
	})
}

func TestClaim(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, o := range []*Overlay{nil, {Lower: []string{"/x"}}} {
			if f, err := o.Claim(); f != nil || err != nil {
				t.Errorf("%v: %v %v", o, f, err)
			}
		}
		o := &Overlay{Upper: filepath.Join(t.TempDir(), "kept")}
		claimed, err := o.Claim()
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"upper", "work"} {
			if st, err := os.Stat(filepath.Join(o.Upper, dir)); err != nil || !st.IsDir() {
				t.Errorf("%v, %v", st, err)
			}
		}
		refused := func(why error) {
			t.Helper()
			_, err := o.Claim()
			if fe, ok := errors.AsType[*FieldError](err); !ok || fe.Field != "Profile.Overlay.Upper" || !errors.Is(err, why) {
				t.Errorf("%v, want %v", err, why)
			}
		}
		refused(unix.EWOULDBLOCK)
		claimed.Close()
		if claimed, err = o.Claim(); err != nil {
			t.Fatal(err)
		}
		claimed.Close()
		o.Upper = "/proc/self/status"
		refused(unix.ENOTDIR)
	})
}
