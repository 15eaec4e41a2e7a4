//go:build linux

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// A Launch is a case and who launches it.
type Launch struct {
	Case Case
	UID  int
}

// As tells who launches.
func (l Launch) As() As {
	if l.UID == 0 {
		return Root
	}
	return Ordinary
}

func (l Launch) String() string { return l.Case.Name + " as " + string(l.As()) }

// Launches returns every case with every user it is meant for, as far as this process can be that user.
func Launches(cases []Case) []Launch {
	var launches []Launch
	for _, c := range cases {
		if os.Geteuid() != 0 {
			if c.As != Root {
				launches = append(launches, Launch{c, os.Geteuid()})
			}
			continue
		}
		if c.As != Ordinary {
			launches = append(launches, Launch{c, 0})
		}
		if c.As != Root {
			launches = append(launches, Launch{c, ordinaryID})
		}
	}
	return launches
}

var optionWord = regexp.MustCompile(`--[a-z0-9][a-z0-9-]*`)

// KnownTo tells whether impl has all the options of the case that the newest bwrap has.
func (c Case) KnownTo(impl *Implementation) bool {
	for _, word := range optionWord.FindAllString(c.Line, -1) {
		if slices.Contains(allOptions, word) && !slices.Contains(impl.options, word) {
			return false
		}
	}
	return true
}

// allOptions are those of bwrap 0.13.1.
var allOptions = strings.Fields(`
	--help --version --args --argv0 --level-prefix --unshare-all --share-net --unshare-user --unshare-user-try
	--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup --unshare-cgroup-try --userns
	--userns2 --disable-userns --assert-userns-disabled --pidns --uid --gid --hostname --chdir --clearenv
	--setenv --unsetenv --lock-file --sync-fd --bind --bind-try --dev-bind --dev-bind-try --ro-bind
	--ro-bind-try --bind-fd --ro-bind-fd --remount-ro --overlay-src --overlay --tmp-overlay --ro-overlay
	--exec-label --file-label --proc --dev --tmpfs --mqueue --dir --file --bind-data --ro-bind-data --symlink
	--seccomp --add-seccomp-fd --block-fd --userns-block-fd --info-fd --json-status-fd --new-session
	--die-with-parent --as-pid-1 --cap-add --cap-drop --perms --size --chmod --not-a-security-boundary
`)
