package streamhatch

import (
	"os"
	"syscall"
)

// owner returns who owns a repository, if this process can and needs to become
// that user.
func owner(repo string) (*User, error) {
	info, err := os.Stat(repo)
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() != 0 || st.Uid == 0 {
		return nil, nil
	}
	return &User{st.Uid, st.Gid}, nil
}
