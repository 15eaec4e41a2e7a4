package hatch

import (
	"fmt"
	"slices"
	"strings"
)

// GuestDir is the directory in the sandbox that holds the sockets.
const GuestDir = "/run/postern"

const maxName = 64

// reserved names are those of other files in GuestDir, present and planned.
var reserved = []string{"connect", "hatch", "init", "stubs"}

// CheckName reports whether a hatch may have this name. A name becomes a file
// name and part of an environment variable's, so it is a lower-case ASCII
// letter, followed by up to 63 such letters, digits and underscores, and not
// the name of something else in GuestDir ("hatch", say). The empty name is
// valid: it is that of the unnamed hatch.
//
// The error is ErrInvalidName.
func CheckName(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxName {
		return fmt.Errorf("%w %q: longer than %d bytes", ErrInvalidName, name, maxName)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z'
		later := '0' <= c && c <= '9' || c == '_'
		if !letter && (i == 0 || !later) {
			return fmt.Errorf("%w %q: want a lower-case letter, then lower-case letters, digits and underscores", ErrInvalidName, name)
		}
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("%w %q: reserved for postern's own use", ErrInvalidName, name)
	}
	return nil
}

// CheckSet reports whether one sandbox can have these hatches: none is nil,
// every name is valid, and no two are the same. In particular, at most
// one is unnamed.
//
// The error is ErrInvalidName or ErrDuplicate.
func CheckSet(hatches []Hatch) error {
	seen := make(map[string]bool, len(hatches))
	for i, h := range hatches {
		if h == nil {
			return fmt.Errorf("%w: hatch number %d is nil", ErrInvalidName, i+1)
		}
		name := h.Name()
		if err := CheckName(name); err != nil {
			return err
		}
		if seen[name] {
			if name == "" {
				return fmt.Errorf("%w: two unnamed hatches; give all but one a name", ErrDuplicate)
			}
			return fmt.Errorf("%w: two hatches named %q", ErrDuplicate, name)
		}
		seen[name] = true
	}
	return nil
}

// GuestPath is where the sandbox has the socket of the hatch with this name:
// /run/postern/<name>.sock, or /run/postern/hatch.sock for the unnamed hatch.
func GuestPath(name string) string {
	return GuestDir + "/" + fileName(name)
}

// EnvVar is the environment variable that tells the guest the GuestPath:
// POSTERN_HATCH_<NAME>, or POSTERN_HATCH for the unnamed hatch.
func EnvVar(name string) string {
	if name == "" {
		return "POSTERN_HATCH"
	}
	return "POSTERN_HATCH_" + strings.ToUpper(name)
}

func fileName(name string) string {
	if name == "" {
		name = "hatch"
	}
	return name + ".sock"
}
