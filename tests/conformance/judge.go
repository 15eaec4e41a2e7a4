//go:build linux

package main

import (
	"slices"
	"strings"
)

// A Finding is a difference between a reference and the candidate that nothing explains.
type Finding struct {
	Reference *Implementation
	Difference
}

// A Judge compares a candidate with the references, the newest last.
type Judge struct {
	Bench      *Bench
	Candidate  *Implementation
	References []*Implementation
	Rules      []Rule
}

// Judge launches l everywhere and returns the differences that no rule lists. Where an older reference differs
// from the newest, upstream has changed its mind, and only the newest counts. It also returns which rules
// applied, by index.
func (j *Judge) Judge(l Launch) (findings []Finding, applied map[int]bool, err error) {
	ours, err := j.Bench.Run(j.Candidate, l.Case, l.UID)
	if err != nil {
		return nil, nil, err
	}
	applied = map[int]bool{}
	var newest *Report
	deciding := -1
	for _, reference := range slices.Backward(j.References) {
		if !l.Case.KnownTo(reference) {
			continue
		}
		theirs, err := j.Bench.Run(reference, l.Case, l.UID)
		if err != nil {
			return nil, nil, err
		}
		var changed []Difference
		if newest == nil {
			newest = theirs
		} else {
			changed = Diff(theirs, newest)
		}
		differences := Diff(theirs, ours)
		var indices []int
		indices, deciding = rulesFor(j.Rules, l, differences, deciding)
		for i, rule := range indices {
			switch d := differences[i]; {
			case overlaps(d.Field, changed):
			case rule >= 0:
				applied[rule] = true
			default:
				findings = append(findings, Finding{reference, d})
			}
		}
	}
	return findings, applied, nil
}

// overlaps tells whether one of the differences is at the field, above it or below it.
func overlaps(field string, differences []Difference) bool {
	for _, d := range differences {
		if below(field, d.Field) || below(d.Field, field) {
			return true
		}
	}
	return false
}

func below(field, top string) bool {
	rest, ok := strings.CutPrefix(field, top)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Shrink removes parts of a generated command line as long as fails holds and returns what is left: no single
// part can be removed from it.
func Shrink(c Case, fails func(Case) bool) Case {
	for again := true; again; {
		again = false
		for i := len(c.Parts) - 2; i >= 0; i-- { // the command is last and stays
			smaller := c
			smaller.Parts = append(append([]string{}, c.Parts[:i]...), c.Parts[i+1:]...)
			smaller.Line = strings.Join(smaller.Parts, " ")
			if fails(smaller) {
				c, again = smaller, true
			}
		}
	}
	return c
}
