//go:build linux

package main

import (
	"regexp"
	"slices"
	"strings"
)

// A Class says why postern-launch does not do what bwrap does.
type Class string

const (
	// Better: bwrap has a bug there.
	Better Class = "better"
	// Deliberate: both ways are right.
	Deliberate Class = "deliberate"
)

// A Rule lists differences between bwrap and postern-launch. In the patterns * stands for any text, everything
// else for itself, and the empty one for everything.
type Rule struct {
	// Case matches "name as user", Field matches [Difference.Field].
	Case, Field string
	// Theirs and Ours match what bwrap and postern-launch do, as [Difference] has it.
	Theirs, Ours string
	Class        Class
	Reason       string
	// Decides tells that only one of the two runs the command, or fails later than the other: what follows
	// from that (the exit status, whether there is a guest at all, what had been made by then) is listed with
	// it.
	Decides bool
}

func (r Rule) matches(launch Launch, d Difference) bool {
	return globMatch(r.Case, launch.String()) && globMatch(r.Field, d.Field) &&
		globMatch(r.Theirs, d.A) && globMatch(r.Ours, d.B)
}

var globs = map[string]*regexp.Regexp{}

func init() {
	for _, glob := range consequences {
		globs[glob] = compileGlob(glob)
	}
	for _, r := range Rules {
		for _, glob := range []string{r.Case, r.Field, r.Theirs, r.Ours} {
			globs[glob] = compileGlob(glob)
		}
	}
}

func compileGlob(glob string) *regexp.Regexp {
	if glob == "" {
		glob = "*"
	}
	parts := strings.Split(glob, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`\A(?s:` + strings.Join(parts, ".*") + `)\z`)
}

func globMatch(glob, text string) bool {
	if compiled, ok := globs[glob]; ok {
		return compiled.MatchString(text)
	}
	return compileGlob(glob).MatchString(text)
}

// consequences are the fields that a rule with Decides lists as well.
var consequences = []string{"Exit", "Guest", "Stdout", "Host[*]", "Documents[*]"}

// rulesFor returns for each difference of a launch the index of the rule that lists it, -1 if none does, and
// the index of the rule that decided the launch. That may be known already from another bwrap.
func rulesFor(rules []Rule, launch Launch, differences []Difference, deciding int) ([]int, int) {
	indices := make([]int, len(differences))
	for i, d := range differences {
		indices[i] = slices.IndexFunc(rules, func(r Rule) bool { return r.matches(launch, d) })
		if indices[i] >= 0 && rules[indices[i]].Decides {
			deciding = indices[i]
		}
	}
	for i, d := range differences {
		if indices[i] < 0 && slices.ContainsFunc(consequences, func(glob string) bool { return globMatch(glob, d.Field) }) {
			indices[i] = deciding
		}
	}
	return indices, deciding
}

// mustOccur tells whether the table has cases for the rule. What is generated is different in every run.
func (r Rule) mustOccur() bool { return !strings.HasPrefix(r.Case, "generated/") }
