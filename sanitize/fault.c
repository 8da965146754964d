/* A read behind an array and a race: what the sanitizers must report, or they are not awake. */
#include <pthread.h>
#include <stdlib.h>

static int shared;

static void *count(void *unused)
{
    for (int i = 0; i < 1000; ++i) shared = shared + 1;
    return unused;
}

int fault(void)
{
    pthread_t other;
    int *volatile numbers = malloc(4 * sizeof *numbers);
    if (!numbers || pthread_create(&other, NULL, count, NULL)) return -1;
    count(NULL);
    pthread_join(other, NULL);
    shared += numbers[4];
    free(numbers);
    return shared;
}
