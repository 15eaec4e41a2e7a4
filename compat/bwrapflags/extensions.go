//go:build linux

package bwrapflags

import (
	"math"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/pidone"
)

// Extensions describes the options that bubblewrap does not have.
const Extensions = `
postern extensions:

    --forward-signals            Pass signals sent to the launcher on to COMMAND's process group
    --follow-dest                From here on, let destinations that are symbolic links lead elsewhere
                                 inside the sandbox, instead of refusing them
    --remove-mountpoints         Afterwards, remove files and directories of the host that had to be
                                 created to be mounted on, if they are still empty
    --rlimit NAME=SOFT[:HARD]    Set a resource limit of COMMAND, named as by prlimit(1); numbers or unlimited
    --launch-status N            Exit with status N, not 1, if COMMAND could not be started
    --explain                    Print the system calls of the launch instead of making them
`

func extensions() map[string]option {
	return map[string]option{
		"--forward-signals":    {apply: func(p *parser, _ string, _ []string) error { p.launcher.Forward = true; return nil }},
		"--follow-dest":        {apply: func(p *parser, _ string, _ []string) error { p.follow = true; return nil }},
		"--remove-mountpoints": {apply: func(p *parser, _ string, _ []string) error { p.cmd.RemoveMountpoints = true; return nil }},
		"--explain":            {apply: func(p *parser, _ string, _ []string) error { p.cmd.Action = Explain; return nil }},
		"--rlimit": {1, "", func(p *parser, _ string, v []string) error {
			l, ok := limit(v[0])
			if !ok {
				return p.failf("--rlimit takes NAME=SOFT or NAME=SOFT:HARD, like nofile=1024:4096: %s", v[0])
			}
			p.cmd.Spec.Limits = append(p.cmd.Spec.Limits, l)
			return nil
		}},
		"--launch-status": {1, "", func(p *parser, _ string, v []string) error {
			n, ok := smallNumber(v[0])
			if !ok || n < 1 || n > 255 {
				return p.failf("--launch-status takes a number from 1 to 255: %s", v[0])
			}
			p.launcher.FailStatus, p.launcher.ExecStatus = n, n
			return nil
		}},
	}
}

// limit reads NAME=SOFT[:HARD]; without a hard limit both are the same.
func limit(s string) (pidone.Limit, bool) {
	name, values, ok := strings.Cut(s, "=")
	resource, known := pidone.LimitByName(strings.ToLower(name))
	if !ok || !known {
		return pidone.Limit{}, false
	}
	soft, hard, two := strings.Cut(values, ":")
	if !two {
		hard = soft
	}
	s1, ok1 := limitValue(soft)
	h1, ok2 := limitValue(hard)
	return pidone.Limit{Resource: resource, Soft: s1, Hard: h1}, ok1 && ok2 && s1 <= h1
}

func limitText(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

func limitValue(s string) (uint64, bool) {
	if s == "unlimited" {
		return math.MaxUint64, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// following lets an operation follow a link at its destination.
func following(op mounts.Op) mounts.Op {
	switch o := op.(type) {
	case mounts.Bind:
		o.FollowDest = true
		return o
	}
	return op
}
