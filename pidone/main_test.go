//go:build linux

package pidone_test

import (
	"os"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
)

func TestMain(m *testing.M) {
	guest.Main()
	os.Exit(testutil.Main(m))
}
