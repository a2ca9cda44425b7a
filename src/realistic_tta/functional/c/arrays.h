/* Arrays of float32 that Python hands over, and how they lie in memory.

   What takes time with a layer's few hundred numbers is not to work them out but to begin some
   thirty operations for it: hence these functions, which do it in one go. Whatever is not float32
   or lies otherwise is not taken: the answer says so, and Python does it. The formulas are those of
   the Python modules that call them, by way of kernel.py; tests/statistics/test_kernel.py holds
   both together. Built as realistic_tta.statistics._kernel.
*/
#ifndef REALISTIC_TTA_ARRAYS_H
#define REALISTIC_TTA_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

/* Vectors of eight where the processor has them. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FAST __attribute__((target_clones("avx2", "default")))
#else
#define FAST
#endif

#ifdef _MSC_VER
#define restrict __restrict
#endif

#define MOST_ARGUMENTS 16
#define ARGUMENTS PyObject *module, PyObject *const *given, Py_ssize_t count

typedef struct {
    Py_buffer view;
    int held;
} Floats;

static inline int hold(Floats *floats, PyObject *object, int writable) {
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    floats->held = 0;
    if (PyObject_GetBuffer(object, &floats->view, flags) != 0) {
        PyErr_Clear();
        return 0;
    }
    floats->held = 1;
    return floats->view.itemsize == 4 && strcmp(floats->view.format, "f") == 0;
}

static inline void let_go(Floats *floats, int count) {
    for (int each = 0; each < count; each++)
        if (floats[each].held) PyBuffer_Release(&floats[each].view);
}

/* Whether values lie one after the other, from this axis on. */
static inline int in_a_row(const Py_buffer *view, int axis) {
    Py_ssize_t next = 4;
    for (int each = view->ndim - 1; each >= axis; each--) {
        if (view->shape[each] != 1 && view->strides[each] != next) return 0;
        next *= view->shape[each];
    }
    return 1;
}

static inline Py_ssize_t length(const Py_buffer *view) { return view->len / 4; }

/* As many numbers as expected, one after the other. */
static inline int is_row(const Floats *floats, Py_ssize_t expected) {
    return length(&floats->view) == expected && in_a_row(&floats->view, 0);
}

static inline float *start(const Floats *floats) { return (float *)floats->view.buf; }

/* A Python number into a double; 0 where it is none. */
static inline int take(PyObject *object, double *number) {
    *number = PyFloat_AsDouble(object);
    if (*number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* One each for the functions of the module, which module.c lists. */
PyObject *estimate(ARGUMENTS);
PyObject *image_moments(ARGUMENTS);
PyObject *marks(ARGUMENTS);
PyObject *read_backward(ARGUMENTS);
PyObject *read_forward(ARGUMENTS);
PyObject *sight(ARGUMENTS);
PyObject *whitened(ARGUMENTS);

#endif
