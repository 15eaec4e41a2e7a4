//go:build !linux

package connector

import (
	"errors"
	"fmt"
)

// Image is the connector, as an ELF executable for Linux. Away from Linux, the
// error is [errors.ErrUnsupported].
func Image() ([]byte, error) {
	return nil, fmt.Errorf("connector: sandboxes need Linux: %w", errors.ErrUnsupported)
}
