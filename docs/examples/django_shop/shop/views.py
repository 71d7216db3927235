from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.jobs import ship
from shop.models import Order


@csrf_exempt  # so that curl can order; a form would not need it
@require_POST
@transaction.atomic
def order(request: HttpRequest) -> JsonResponse:
    """The order, its shipping and the mail are all there, or none of them."""
    made = Order.objects.create(customer=request.POST["customer"])
    ship.enqueue_with(connection="default", unique_key=f"ship:{made.id}")(order_id=made.id)
    send_mail("Thank you", f"Your order has the number {made.id}.", None, [made.customer])
    return JsonResponse({"id": made.id}, status=201)
