//go:build !linux

package hatch

import (
	"errors"
	"fmt"
	"net"
)

type place struct{ path string }

func listen(string, string, int) (*net.UnixListener, place, error) {
	return nil, place{}, fmt.Errorf("hatch: sandboxes, and so hatches, need Linux: %w", errors.ErrUnsupported)
}

func (*place) remove() error { return nil }
