# Compile, link, archive, run. Prints what the program prints.
set -euo pipefail
cd "$(mktemp -d)"
cat >a.c <<'C'
#include <pthread.h>
#include <stdio.h>
static void *say(void *what) { puts(what); return NULL; }
int main(void)
{
	pthread_t t;
	return pthread_create(&t, NULL, say, "fine") || pthread_join(t, NULL);
}
C
gcc -O2 -g -pipe -c a.c
ar rcs liba.a a.o
gcc -o a liba.a -pthread
strip a
./a
