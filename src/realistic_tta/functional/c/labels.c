/* statistics/label_order.py, `_forward` and `_backward`: what the images before and after each tell
   of its label. */
#include "arrays.h"

#define TINY 1e-30f

typedef struct {
    Py_ssize_t images, ways, classes;
    const float *predictions, *before, *stays; /* (image, class), (stay, class), (stay,) */
    float *beliefs, *totals;                   /* (image, stay, class), (image, stay) */
} Order;

FAST static void forward(const Order *of) {
    Py_ssize_t classes = of->classes;
    for (Py_ssize_t way = 0; way < of->ways; way++) {
        float stay = of->stays[way], fresh = (1 - stay) / classes;
        const float *belief = of->before + way * classes;
        for (Py_ssize_t image = 0; image < of->images; image++) {
            const float *seen = of->predictions + image * classes;
            float *own = of->beliefs + (image * of->ways + way) * classes, total = 0;
            for (Py_ssize_t each = 0; each < classes; each++) {
                own[each] = seen[each] * (fresh + stay * belief[each]);
                total += own[each];
            }
            for (Py_ssize_t each = 0; each < classes; each++) own[each] /= total + TINY;
            of->totals[image * of->ways + way] = total;
            belief = own;
        }
    }
}

/* Beliefs become those that also know the images after each. later: room for a row. */
FAST static void backward(const Order *of, float *later) {
    Py_ssize_t classes = of->classes;
    for (Py_ssize_t way = 0; way < of->ways; way++) {
        float stay = of->stays[way], fresh = (1 - stay) / classes;
        for (Py_ssize_t each = 0; each < classes; each++) later[each] = 1;
        for (Py_ssize_t image = of->images - 1; image >= 0; image--) {
            const float *seen = of->predictions + image * classes;
            float *own = of->beliefs + (image * of->ways + way) * classes;
            float total = 0, joint = 0;
            for (Py_ssize_t each = 0; each < classes; each++) {
                own[each] *= later[each];
                total += own[each];
                later[each] *= seen[each];
                joint += later[each];
            }
            for (Py_ssize_t each = 0; each < classes; each++) {
                own[each] /= total + TINY;
                later[each] = fresh + stay * (later[each] / (joint + TINY));
            }
        }
    }
}

/* read_forward(predictions, belief before, stays, beliefs, totals)
   read_backward(predictions, any beliefs, stays, beliefs to change, totals) */
static PyObject *read_either(PyObject *const *given, Py_ssize_t count, int goes_back) {
    Floats held[5];
    int taken = 0, fits = count == 5;
    for (; fits && taken < 5; taken++) fits = hold(&held[taken], given[taken], taken >= 3);
    fits = fits && held[0].view.ndim == 2 && held[1].view.ndim == 2;
    if (fits) {
        Order of = {held[0].view.shape[0], held[1].view.shape[0], held[0].view.shape[1],
                    start(&held[0]),       start(&held[1]),       start(&held[2]),
                    start(&held[3]),       start(&held[4])};
        fits = is_row(&held[0], of.images * of.classes) && is_row(&held[1], of.ways * of.classes) &&
               is_row(&held[2], of.ways) && is_row(&held[3], of.images * of.ways * of.classes) &&
               is_row(&held[4], of.images * of.ways);
        float *later = fits ? malloc(of.classes * sizeof(float) + 1) : NULL;
        fits = later != NULL;
        if (fits) {
            Py_BEGIN_ALLOW_THREADS if (goes_back) backward(&of, later);
            else forward(&of);
            Py_END_ALLOW_THREADS
        }
        free(later);
    }
    let_go(held, taken);
    return PyBool_FromLong(fits);
}

PyObject *read_forward(ARGUMENTS) {
    (void)module;
    return read_either(given, count, 0);
}

PyObject *read_backward(ARGUMENTS) {
    (void)module;
    return read_either(given, count, 1);
}
