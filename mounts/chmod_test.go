//go:build linux

package mounts_test

import (
	"os"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// The mode of what its owner may not read can be changed all the same, and what
// keeps a mode from being changed is named.
func TestChmodUnreadable(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		top := tree(t, "dir/file", "dir/sub/")
		for name, mode := range map[string]os.FileMode{"dir/file": 0o200, "dir/sub": 0o300} {
			if err := os.Chmod(top+"/"+name, mode); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { os.Chmod(top+"/dir/sub", 0o700) })
		bind := mounts.Bind{Source: top + "/dir", Dest: "/d", Mode: mounts.ReadWrite}
		chmod := func(dest string) mounts.Op { return mounts.Chmod{Dest: dest, Perm: 0o711} }
		if err := unix.Fchmodat(-1, "", 0, unix.AT_EMPTY_PATH); err == unix.EOPNOTSUPP || err == unix.ENOSYS {
			t.Log("this kernel changes the mode of readable files only")
			if os.Getuid() != 0 {
				wantFailure(t, mounts.DoFind, unix.EACCES, bind, chmod("/d/file"))
			}
			return
		}
		got := guest.Output(t, "stat -c %a /d/file /d/sub", bind, chmod("/d/file"), chmod("/d/sub/"))
		if want := "711\n711"; got != want {
			t.Errorf("modes %q, want %q", got, want)
		}
		null := mounts.Bind{Source: "/dev/null", Dest: "/null"} // which cannot be opened there
		wantFailure(t, mounts.DoChmod, unix.EROFS, null, chmod("/null"))
		wantFailure(t, mounts.DoFind, unix.ENOTDIR, null, chmod("/null/"))
		wantFailure(t, mounts.DoFind, unix.ELOOP, bind, mounts.Symlink{Target: "file", Dest: "/d/link"}, chmod("/d/link"))
	})
}
