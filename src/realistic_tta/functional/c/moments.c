/* statistics/image_moments.py, `image_moments`: sums over the positions of each image's channels. */
#include "arrays.h"

#define FEW 512 /* values that are added up in float32 */

static Py_ssize_t smaller(Py_ssize_t one, Py_ssize_t other) { return one < other ? one : other; }

/* Of values about a shift: their sum and that of their squares. */
static inline void add_up(const float *values, Py_ssize_t count, float shift, double *total,
                          double *squares) {
    *total = *squares = 0;
    for (Py_ssize_t from = 0; from < count; from += FEW) {
        Py_ssize_t until = smaller(from + FEW, count);
        float sum = 0, square = 0;
        for (Py_ssize_t place = from; place < until; place++) {
            float value = values[place] - shift;
            sum += value;
            square += value * value;
        }
        *total += sum;
        *squares += square;
    }
}

/* The same where channels lie next to each other, into total and squares, (channel,) each. That
   nothing of it overlaps has to be said, or no vectors come of it. */
static inline void add_up_rows(const float *restrict values, Py_ssize_t positions,
                               Py_ssize_t channels, const float *restrict shift,
                               double *restrict total, double *restrict squares,
                               float *restrict few) {
    for (Py_ssize_t from = 0; from < positions; from += FEW / 8) {
        Py_ssize_t until = smaller(from + FEW / 8, positions);
        memset(few, 0, 2 * channels * sizeof(float));
        Py_ssize_t place = from;
        for (; place + 4 <= until; place += 4) { /* four at once: sums are fetched less often */
            const float *own = values + place * channels, *next = own + channels;
            const float *third = next + channels, *last = third + channels;
            for (Py_ssize_t channel = 0; channel < channels; channel++) {
                float about = shift[channel], one = own[channel] - about;
                float two = next[channel] - about, three = third[channel] - about;
                float four = last[channel] - about;
                few[channel] += (one + two) + (three + four);
                few[channels + channel] +=
                    (one * one + two * two) + (three * three + four * four);
            }
        }
        for (; place < until; place++)
            for (Py_ssize_t channel = 0; channel < channels; channel++) {
                float value = values[place * channels + channel] - shift[channel];
                few[channel] += value;
                few[channels + channel] += value * value;
            }
        for (Py_ssize_t channel = 0; channel < channels; channel++) {
            total[channel] += few[channel];
            squares[channel] += few[channels + channel];
        }
    }
}

typedef struct {
    Py_ssize_t images, channels, positions, image_stride;
    int channels_last;
    const float *inputs, *shift; /* (image, channel, position) or channels last; (channel,) */
    const float *constant, *slope, *square_slope; /* (2, channel), (2, channel), (channel,) */
    float *out;                                   /* (image, 2 * channel) */
} Look;

FAST static void look_at(const Look *look, double *sums, float *few) {
    Py_ssize_t channels = look->channels, positions = look->positions;
    double *total = sums, *squares = sums + channels;
    for (Py_ssize_t image = 0; image < look->images; image++) {
        const float *values = look->inputs + image * look->image_stride;
        float *first = look->out + 2 * image * channels, *second = first + channels;
        if (look->channels_last) {
            memset(sums, 0, 2 * channels * sizeof(double));
            add_up_rows(values, positions, channels, look->shift, total, squares, few);
        } else {
            for (Py_ssize_t channel = 0; channel < channels; channel++)
                add_up(values + channel * positions, positions, look->shift[channel],
                       &total[channel], &squares[channel]);
        }
        for (Py_ssize_t channel = 0; channel < channels; channel++) {
            double mean = total[channel] / positions, square = squares[channel] / positions;
            first[channel] = (float)(look->constant[channel] + look->slope[channel] * mean);
            second[channel] = (float)(look->constant[channels + channel] +
                                      look->slope[channels + channel] * mean +
                                      look->square_slope[channel] * square);
        }
    }
}

/* Where the positions of an image lie: 0 channel by channel, 1 channels last, -1 neither. */
static int layout(const Py_buffer *view) {
    if (in_a_row(view, 1)) return 0;
    Py_ssize_t next = 4 * view->shape[1];
    if (view->ndim < 3 || view->strides[1] != 4) return -1;
    for (int axis = view->ndim - 1; axis >= 2; axis--) {
        if (view->shape[axis] != 1 && view->strides[axis] != next) return -1;
        next *= view->shape[axis];
    }
    return 1;
}

/* image_moments(inputs, constant, slope, square_slope, out, shift or None) */
PyObject *image_moments(ARGUMENTS) {
    (void)module;
    Floats held[6];
    int fits = count == 6, taken = 0, arrays = fits && given[5] == Py_None ? 5 : 6;
    for (; fits && taken < arrays; taken++) fits = hold(&held[taken], given[taken], taken == 4);
    const Py_buffer *inputs = &held[0].view;
    if (fits && inputs->ndim >= 2 && inputs->len > 0 && inputs->strides[0] >= 0) {
        Py_ssize_t images = inputs->shape[0], channels = inputs->shape[1];
        double *sums = malloc(2 * channels * sizeof(double));
        float *few = calloc(3 * channels, sizeof(float));  /* behind it, a shift of nothing */
        int kind = layout(inputs);
        fits = sums != NULL && few != NULL && kind >= 0 && is_row(&held[1], 2 * channels) &&
               is_row(&held[2], 2 * channels) && is_row(&held[3], channels) &&
               is_row(&held[4], 2 * images * channels) &&
               (arrays == 5 || is_row(&held[5], channels));
        if (fits) {
            const float *shift = arrays == 5 ? few + 2 * channels : start(&held[5]);
            Look look = {images, channels, length(inputs) / (images * channels),
                         inputs->strides[0] / 4, kind, start(&held[0]), shift, start(&held[1]),
                         start(&held[2]), start(&held[3]), start(&held[4])};
            Py_BEGIN_ALLOW_THREADS look_at(&look, sums, few);
            Py_END_ALLOW_THREADS
        }
        free(sums);
        free(few);
    } else {
        fits = 0;
    }
    let_go(held, taken);
    return PyBool_FromLong(fits);
}
