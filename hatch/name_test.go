package hatch

import (
	"errors"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, name := range []string{"", "a", "repo", "repo_2", "hatches", strings.Repeat("a", maxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{
		"hatch", "init", "stubs", "connect", "Repo", "2a", "_a", "a-b", "a.b", "a/b", "..", "a b", "a\n", "a\x00", "a=b", "é",
		strings.Repeat("a", maxName+1),
	} {
		if err := CheckName(name); !errors.Is(err, ErrInvalidName) {
			t.Errorf("CheckName(%q) = %v, want ErrInvalidName", name, err)
		}
	}
}

func TestGuestPathAndEnvVar(t *testing.T) {
	for _, tt := range []struct{ name, path, env string }{
		{"", "/run/postern/hatch.sock", "POSTERN_HATCH"},
		{"repo_2", "/run/postern/repo_2.sock", "POSTERN_HATCH_REPO_2"},
	} {
		if got := GuestPath(tt.name); got != tt.path {
			t.Errorf("GuestPath(%q) = %s, want %s", tt.name, got, tt.path)
		}
		if got := EnvVar(tt.name); got != tt.env {
			t.Errorf("EnvVar(%q) = %s, want %s", tt.name, got, tt.env)
		}
	}
	if n := len(GuestPath(strings.Repeat("a", maxName))); n > MaxPath {
		t.Errorf("the longest name makes a path of %d bytes", n)
	}
}

type named string

func (n named) Name() string                { return string(n) }
func (named) SocketPath() string            { return "" }
func (named) Serve() (stop func(), _ error) { return func() {}, nil }
func (named) Close() error                  { return nil }

func TestCheckSet(t *testing.T) {
	for _, tt := range []struct {
		set  []Hatch
		want error
	}{
		{nil, nil},
		{[]Hatch{named(""), named("a"), named("b")}, nil},
		{[]Hatch{named(""), named("")}, ErrDuplicate},
		{[]Hatch{named("a"), named("b"), named("a")}, ErrDuplicate},
		{[]Hatch{named("hatch")}, ErrInvalidName},
		{[]Hatch{named("a"), nil}, ErrInvalidName},
	} {
		if err := CheckSet(tt.set); !errors.Is(err, tt.want) {
			t.Errorf("CheckSet(%v) = %v, want %v", tt.set, err, tt.want)
		}
	}
}
