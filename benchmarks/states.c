/* What saving and restoring the state costs the units themselves. */
#include <stddef.h>

typedef int (*get_state)(void *, void **);
typedef int (*set_state)(void *, void *);

/* Each of `count` components saves into (or restores from) its own state, `times` times over. */
int save_states(void **components, void **functions, void **states, size_t count, long long times) {
    int worst = 0;
    for (long long k = 0; k < times; ++k)
        for (size_t i = 0; i < count; ++i) worst |= ((get_state)functions[i])(components[i], &states[i]);
    return worst;
}

int restore_states(void **components, void **functions, void **states, size_t count, long long times) {
    int worst = 0;
    for (long long k = 0; k < times; ++k)
        for (size_t i = 0; i < count; ++i) worst |= ((set_state)functions[i])(components[i], states[i]);
    return worst;
}
