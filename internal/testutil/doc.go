// Package testutil has what the tests of this module share: running a test as
// root and as an unprivileged user, insisting on tools in CI, and finding what
// a test left behind.
package testutil
