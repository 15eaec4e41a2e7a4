// Package guest launches guests for the tests of the packages that describe
// launches, and runs probes in them: functions of the test program itself,
// which a guest executes.
package guest
